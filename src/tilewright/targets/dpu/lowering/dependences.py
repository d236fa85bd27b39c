"""The dependences between a program's instructions, by the waits of tile programs.

Commands of a tile program wait for the rows of buffers: each instruction waits for those of other
engines that touched the same rows of the buffer before it. So it is noted, place by place of the
banks, which instruction of each engine read and wrote it last, and the waits of a command say of
which of its buffers its instructions look that up. A buffer that a command does not wait for holds
nothing of its own kernel yet; then only kernels before count.

Kernels know nothing of one another, so between them the places decide: in the banks, and in the
main memory in which one kernel stores what another loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.footprint import Span
from tilewright.targets.dpu.tokens import CLASSES

Numbers = NDArray[np.int32]
"""Instructions by number; -1 for none."""


@dataclass(frozen=True)
class Area:
    """Rows of some successive banks, or of each pixel there some ``lines``."""

    banks: slice
    rows: slice
    waited: bool
    """True if the command waits for the rows of the buffer that lies there."""
    lines: slice | None = None
    period: int = 0
    """Rows from pixel to pixel, where ``lines`` counts."""

    def of(self, table: Numbers) -> Numbers:
        """A view of its places in a table of all banks and rows."""
        view = table[:, :, self.banks, self.rows]
        if self.lines is None:
            return view
        return view.reshape(*view.shape[:3], -1, self.period)[..., self.lines]


class Dependences:
    """The instructions that a program's instructions wait for; kernels come one after the other."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.start = 0
        """The first instruction of the kernel."""
        self.waits: list[list[int]] = []
        """Per instruction and engine, the last instruction of it that must have completed."""
        self._last: Numbers = np.full((2, CLASSES, core.banks, DEPTH), -1, np.int32)
        """Per place: the last instruction of each engine that read it, and that wrote it."""
        self._memory: dict[tuple[int, bool], Numbers] = {}
        """(register, stored) -> the last instruction of kernels before, per byte."""
        self._moved: list[tuple[Span, bool, int]] = []
        """Spans that the kernel's instructions load or store, on which later kernels may depend."""

    def open(self) -> None:
        """Begin a kernel; what a refused kernel has left counts no more."""
        if len(self.waits) > self.start:
            del self.waits[self.start :]
            self._last[self._last >= self.start] = -1
        self._moved = []

    def add(self) -> None:
        """One more instruction, which waits for nothing so far."""
        self.waits.append([-1] * CLASSES)

    def wait(self, number: int, engine: int, producer: int) -> None:
        """Let an instruction wait for one of an engine."""
        waits = self.waits[number]
        waits[engine] = max(waits[engine], producer)

    def touch(
        self, engine: int, first: int, last: int, areas: Sequence[Area], *, write: bool
    ) -> None:
        """Successive instructions of an engine touch the same areas: the first one waits, and the
        last one is waited for."""
        for area in areas:
            view = area.of(self._last)
            seen = view if write else view[1:]
            if not area.waited:
                seen = np.where(seen < self.start, seen, -1)
            latest = seen.max(axis=(0, *range(2, seen.ndim))).tolist()
            for other, producer in enumerate(latest):
                if other != engine and producer >= 0:
                    self.wait(first, other, producer)
            view[int(write), engine] = last

    def move(self, number: int, span: Span, engines: tuple[int, int], *, store: bool) -> None:
        """Record that an instruction loads or stores; ``engines`` are that of loads and that of
        stores."""
        producer = int(self._bytes(span, not store).max(initial=-1))
        if producer >= 0:
            self.wait(number, engines[not store], producer)
        self._moved.append((span, store, number))

    def close(self) -> None:
        """End a kernel: its moves are the last that touched their bytes."""
        for span, store, number in self._moved:
            self._bytes(span, store)[:] = number
        self._moved = []
        self.start = len(self.waits)

    def _bytes(self, span: Span, stored: bool) -> Numbers:
        """[runs, bytes]: a view of the bytes of a span."""
        key = (span.register, stored)
        memory = self._memory.get(key, np.zeros(0, np.int32))
        if memory.size < span.end:
            grown = np.full(max(span.end, 2 * memory.size), -1, np.int32)
            grown[: memory.size] = memory
            self._memory[key] = memory = grown
        return np.lib.stride_tricks.as_strided(
            memory[span.address :],
            (span.count, span.run),
            (span.stride * memory.itemsize, memory.itemsize),
        )
