"""Functions compiled by numba. Only modules that are imported on first use import this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a pure function on arrays and numbers; cached on disk where that can be written."""
    try:
        return cast(_Function, numba.njit(cache=True)(function))
    except RuntimeError:  # numba finds no directory for its cache
        return cast(_Function, numba.njit(function))
