"""Functions compiled by numba. Only modules that are imported on first use import this one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a pure function on arrays and numbers; cached on disk where that can be written.

    It may call compiled functions of its own file: numba looks at that alone to see whether what
    it has cached is old.
    """
    try:
        return cast(_Function, numba.njit(cache=True)(function))
    except RuntimeError:  # numba finds no directory for its cache
        return cast(_Function, numba.njit(function))


def compiled_together(function: _Function) -> _Function:
    """``compiled``, for a function that calls others of its folder: any change there counts."""
    found: Any = compiled(function)
    file = getattr(getattr(found, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        cast(Any, file)._source_stamp = _stamp(Path(function.__code__.co_filename).parent)
        return cast(_Function, found)
    return cast(_Function, numba.njit(function))  # a numba that keeps its stamp elsewhere


@cache
def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every file of Python in a folder."""
    files = sorted(folder.glob("*.py"))
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)
