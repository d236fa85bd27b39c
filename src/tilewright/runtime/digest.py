"""A digest of Tilewright's own files, by which results of an older one are known."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import tilewright

ENDINGS = (".py", ".c", ".h", ".lark", ".toml", ".hlal", ".txtpb", ".in")
"""The endings of files that have a part in what is built."""


def compiler_digest() -> str:
    """Changes with Tilewright's version, and with any of its files: what it built is old."""
    return sha256(f"{tilewright.__version__} {source_digest()}".encode()).hexdigest()


def installed() -> list[tuple[str, int]]:
    """Folders of installed packages and when one was last added or removed.

    Versions and the targets of plug-ins change with it; to read them takes ten times as long.
    """
    return [
        (folder, Path(folder).stat().st_mtime_ns)
        for folder in sys.path
        if folder.endswith(("site-packages", "dist-packages")) and Path(folder).is_dir()
    ]


@cache
def source_digest() -> str:
    """Changes whenever a file of Tilewright changes, by size or time."""
    state = sha256()
    root = str(Path(tilewright.__file__).parent)
    for name, status in sorted(_files(root, "")):
        state.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return state.hexdigest()


def _files(folder: str, before: str) -> Iterator[tuple[str, os.stat_result]]:
    """Names below a folder and what the system says of them; half a thousand in milliseconds."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ENDINGS):
                yield before + entry.name, entry.stat()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry.path, f"{before}{entry.name}/")
