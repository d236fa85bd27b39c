"""Shared libraries that were built from packages' C, kept in the user's own directory.

    DIRECTORY/libraries/KEY-SHA256.so

KEY is a digest of all that a library is made from, SHA256 its own: a library that has changed since
it was built is built again. A file appears by one rename; one that is loaded may be removed by
another process, as the system keeps what is mapped. Those used longest ago go first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from tilewright.places import default_directory, make_own
from tilewright.temporary import make_folder, temporary_folder

MOST_LIBRARIES = 256
"""Libraries that are kept."""

MOST_BYTES = 1 << 30
"""Bytes of all libraries that are kept."""


def obtain(key: str, build: Callable[[Path], None]) -> Path:
    """The library of a key: the one that is kept, or one that ``build`` writes to a path now.

    Where the directory cannot be written, the library lives as long as this process. Refuses
    (``cache-unsafe``) a directory that other users may write to.
    """
    folder = default_directory() / "libraries"
    try:
        make_own(folder.parent)
        make_own(folder)
        return _kept(folder, key) or _added(folder, key, build)
    except OSError:
        scratch = make_folder()
        build(scratch / "library.so")
        return scratch / "library.so"


def clear() -> None:
    """Remove every library that is kept."""
    _tidy(default_directory() / "libraries", 0)


def _kept(folder: Path, key: str) -> Path | None:
    for path in folder.glob(f"{key}-*.so"):
        with suppress(FileNotFoundError):  # Another process may remove it.
            if path.name == _name(key, path):
                os.utime(path)
                return path
            path.unlink()
    return None


def _added(folder: Path, key: str, build: Callable[[Path], None]) -> Path:
    with temporary_folder(folder, "building-") as scratch:
        built = scratch / "library.so"
        build(built)
        place = built.replace(folder / _name(key, built))
    _tidy(folder, MOST_LIBRARIES)
    return place


def _name(key: str, library: Path) -> str:
    with library.open("rb") as file:
        return f"{key}-{file_digest(file, 'sha256').hexdigest()}.so"


def _tidy(folder: Path, most: int) -> None:
    """Remove the libraries used longest ago beyond the bounds."""
    entries: list[tuple[float, int, Path]] = []
    for path in folder.glob("*.so"):
        with suppress(FileNotFoundError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    size = 0
    for number, (_, bytes_, path) in enumerate(sorted(entries, reverse=True)):
        size += bytes_
        if number >= most or (number and size > MOST_BYTES):
            path.unlink(missing_ok=True)
