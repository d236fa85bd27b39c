"""Large files kept once: packages in a cache link to blobs that are named by their content."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tilewright.runtime.manifest import digest_of_file, read_listed

SMALLEST = 64 << 10
"""Bytes of the smallest file that is worth a link."""


def share_blobs(package: Path, blobs: Path) -> None:
    """Replace a package's large files by links to blobs of the same content, which are made.

    File systems without hard links keep the copies.
    """
    for name, entry in read_listed(package).items():
        if entry.bytes < SMALLEST:
            continue
        path, blob = package / name, blobs / entry.sha256
        with suppress(OSError):
            if blob.is_file() and digest_of_file(blob) == entry:
                link = path.with_name(f".{path.name}.link")
                os.link(blob, link)
                link.replace(path)
                continue
            blob.unlink(missing_ok=True)  # It is damaged: entries that link to it will see it.
            os.link(path, blob)


def drop_unused(blobs: Path) -> None:
    """Remove the blobs that no package links to."""
    for blob in blobs.iterdir():
        with suppress(OSError):
            if blob.stat().st_nlink == 1:
                blob.unlink()


def inodes(directory: Path) -> dict[int, int]:
    """Bytes of the files below a directory by inode, so that links are seen to be one file."""
    sizes: dict[int, int] = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                status = (Path(folder) / name).lstat()
                sizes[status.st_ino] = status.st_size
    return sizes
