"""Large computed weights in a temporary file, mapped: they need not all be in memory at once.

Transformed weights (Winograd's are up to seven times as large), folded and quantised ones would
otherwise pile up from the pass that makes them to the package that they are written to. The file
has no name, so nobody else can change it, and it is gone with the last array that lies in it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np

from tilewright.memory.alignment import align_up
from tilewright.numerics.arrays import Array

LARGE = 4 << 20
"""Bytes of an array that is worth a place in a file."""


class Spill:
    """A temporary file that grows; where none can be made, arrays stay where they are."""

    def __init__(self, large: int = LARGE) -> None:
        self.large = large
        self._file: int | None = None
        self._end = 0

    def keep(self, array: Array) -> Array:
        """A read-only view of a C-contiguous array's copy in the file.

        The array itself if it is small, or there is no room.
        """
        if array.nbytes < self.large:
            return array
        start = align_up(self._end, mmap.ALLOCATIONGRANULARITY)
        try:
            file = self._open()
            left = array.reshape(-1).view(np.uint8).data
            os.lseek(file, start, os.SEEK_SET)
            while left:
                left = left[os.write(file, left) :]
            space = mmap.mmap(file, array.nbytes, access=mmap.ACCESS_READ, offset=start)
        except (OSError, ValueError):
            return array
        self._end = start + array.nbytes
        return np.frombuffer(space, np.uint8).view(array.dtype).reshape(array.shape)

    def _open(self) -> int:
        """The file, which loses its name as soon as it has one."""
        if self._file is None:
            self._file, name = tempfile.mkstemp(prefix="tilewright-")
            weakref.finalize(self, os.close, self._file)
            Path(name).unlink()
        return self._file
