"""Functions compiled by numba. Only modules that are imported on first use import this one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a pure function on arrays and numbers; cached on disk where that can be written.

    It may call compiled functions of its own file: numba looks at that alone to see whether what
    it has cached is old.
    """
    try:
        dispatcher: Any = _compiled(function, cache=True)
    except RuntimeError:  # numba finds no directory for its cache
        return _compiled(function)
    folder = getattr(getattr(dispatcher, "_cache", None), "cache_path", None)
    if folder is not None:
        dispatcher.compile = _one_at_a_time(dispatcher.compile, folder)
    return dispatcher


def compiled_together(function: _Function) -> _Function:
    """``compiled``, for a function that calls others of its folder: any change there counts."""
    dispatcher: Any = compiled(function)
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        cast(Any, file)._source_stamp = _stamp(Path(function.__code__.co_filename).parent)
        return cast(_Function, dispatcher)
    return _compiled(function)  # a numba that keeps its stamp elsewhere


def _compiled(function: _Function, **options: bool) -> _Function:
    """Without the wrapper for calls from C, which nothing makes: a tenth of the time."""
    dispatcher = cast(Any, numba).njit(no_cfunc_wrapper=True, **options)(function)
    template = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        named = {name: types.unliteral(kind) for name, kind in kws.items()}
        return template([types.unliteral(kind) for kind in args], named)

    # numba would compile a function anew for each constant that another hands to it.
    dispatcher.get_call_template = get_call_template
    return cast(_Function, dispatcher)


def _one_at_a_time(compile: Callable[[Any], Any], folder: str) -> Callable[[Any], Any]:
    """Look for a function and compile it while no other process does: it finds the result."""

    def alone(signature: Any) -> Any:
        with _folder_lock(folder):
            return compile(signature)

    return alone


_holding: list[str] = []
"""Folders whose lock this process holds: functions are compiled while their callers are."""


@contextmanager
def _folder_lock(folder: str) -> Generator[None]:
    """Hold a folder's lock between processes; numba's own lock keeps threads apart."""
    with global_compiler_lock:
        if folder in _holding:
            yield
            return
        handle = _locked(folder)
        _holding.append(folder)
        try:
            yield
        finally:
            _holding.remove(folder)
            if handle is not None:
                os.close(handle)


def _locked(folder: str) -> int | None:
    """A handle that holds a folder's lock; None where there are no locks, as on some networks."""
    handle = None
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle


@cache
def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every file of Python in a folder."""
    files = sorted(folder.glob("*.py"))
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)
