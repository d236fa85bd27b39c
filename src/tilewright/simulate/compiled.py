"""Functions compiled by numba. Only modules that are imported on first use import this one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import types

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a pure function on arrays and numbers; cached on disk where that can be written.

    It may call compiled functions of its own file: numba looks at that alone to see whether what
    it has cached is old.
    """
    try:
        return _compiled(function, cache=True)
    except RuntimeError:  # numba finds no directory for its cache
        return _compiled(function)


def compiled_together(function: _Function) -> _Function:
    """``compiled``, for a function that calls others of its folder: any change there counts."""
    found: Any = compiled(function)
    file = getattr(getattr(found, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        cast(Any, file)._source_stamp = _stamp(Path(function.__code__.co_filename).parent)
        return cast(_Function, found)
    return _compiled(function)  # a numba that keeps its stamp elsewhere


def _compiled(function: _Function, **options: bool) -> _Function:
    """Without the wrapper for calls from C, which nothing makes: a tenth of the time."""
    found = cast(Any, numba).njit(no_cfunc_wrapper=True, **options)(function)
    template = found.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        named = {name: types.unliteral(kind) for name, kind in kws.items()}
        return template([types.unliteral(kind) for kind in args], named)

    # numba would compile a function anew for each constant that another hands to it.
    found.get_call_template = get_call_template
    return cast(_Function, found)


@cache
def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every file of Python in a folder."""
    files = sorted(folder.glob("*.py"))
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)
