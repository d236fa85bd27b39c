"""Files mapped into memory: weights are read where they are used, and never copied.

A file that is cut short while it is mapped takes its pages with it, and reading them ends the
process (SIGBUS). So a mapped file is looked at again (``check``) before each stage that reads it:
one that has changed in place since is refused. A file that was replaced by another of its name, as
careful programs write files, does no harm: the map keeps the old one. What is left is a change
during a stage, by somebody who overwrites a model while it is compiled.
"""

from __future__ import annotations

import mmap
import os
import weakref
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse

_READ_BYTES = 1 << 20

_RESIDENT_BYTES = 64 << 20
"""Pages handed out before those that were are given back: they would count as memory in use."""


class MappedFile:
    """A file's bytes, read-only; raises OSError or ValueError when it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._file)
        self._state = self._look()
        self._map: mmap.mmap | None = None
        self._handed = 0
        self.bytes: NDArray[np.uint8] = np.zeros(0, np.uint8)
        """All of them, as a view of the map."""
        if self._state[0]:
            self._map = mmap.mmap(self._file, self._state[0], access=mmap.ACCESS_READ)
            self.bytes = np.frombuffer(self._map, np.uint8)

    def _look(self) -> tuple[int, int]:
        """Size, and time of the last change."""
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns

    def check(self) -> None:
        """Refuse (``model-changed``) if the file is no longer what was mapped."""
        if self._look() != self._state:
            raise refuse(
                "model-changed",
                "the file has been written to since it was read",
                where=repr(str(self.path)),
                help="load it again; write models to a new file and rename it",
            )

    def view(self, start: int, end: int) -> NDArray[np.uint8]:
        """Some of the bytes, as a view; those handed out long before leave the memory in use."""
        self._handed += end - start
        if self._handed > _RESIDENT_BYTES:
            self.release()
        return self.bytes[start:end]

    def release(self) -> None:
        """Give back the pages that have been read; they are read again when they are used."""
        self._handed = 0
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def digest(self) -> str:
        """SHA-256 in hexadecimal, of the file as it is read through, piece by piece."""
        state, at = sha256(), 0
        while piece := os.pread(self._file, _READ_BYTES, at):
            state.update(piece)
            at += len(piece)
        return state.hexdigest()
