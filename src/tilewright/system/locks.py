"""Locks of files and directories between processes; the system releases those of one that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold the lock of a file, which is made; calls ``waiting`` if another holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def share(directory: Path) -> int | None:
    """Use a directory: a handle to close at the end; None if there is no such directory."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def in_use(directory: Path) -> bool:
    """Return True if anyone holds a handle of ``share``; false for what cannot be opened."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return True
    finally:
        os.close(handle)
