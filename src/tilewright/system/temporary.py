"""Temporary folders that are gone when the process ends, also when ctrl-C ends it at any step."""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_folders: dict[Path, int] = {}
"""Every folder that may exist, with the process that made it: a forked child removes its own."""


def make_folder(parent: Path | None = None, prefix: str = "tilewright-") -> Path:
    """A new empty folder for this user alone, until ``remove_folder`` or the process's end.

    It lies in ``parent``, without which in the system's folder of temporary files.

    ``tempfile.TemporaryDirectory`` leaves a folder where ctrl-C comes while the folder is
    being made or removed: here, the name is noted before the folder exists and until it is gone.
    Raises OSError.
    """
    if parent is None:
        import tempfile

        parent = Path(tempfile.gettempdir())
    folder = parent.absolute()
    folder /= f"{prefix}{os.urandom(8).hex()}"
    _folders[folder] = os.getpid()
    folder.mkdir(mode=0o700)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder of ``make_folder`` with all that it holds."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _folders.pop(folder, None)


@contextmanager
def temporary_folder(parent: Path | None = None, prefix: str = "tilewright-") -> Generator[Path]:
    """A folder of ``make_folder`` for a ``with`` statement."""
    folder = make_folder(parent, prefix)
    try:
        yield folder
    finally:
        remove_folder(folder)


def _remove_all() -> None:
    for folder, process in list(_folders.items()):
        if process == os.getpid():
            remove_folder(folder)


atexit.register(_remove_all)
