"""Moves that wait for issue slots: one transfer at a time between the instructions of a tile.

The queue is in order: a transfer that waits for the one before it holds up all after it. So only
one transfer is started at a time, where the code of a tile has an **issue slot**, and the next one
not before the products between slots have taken as long as it is likely to. What is left when the
tile is done follows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Runs
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value

MAX_LOOPS = 2
"""Loops over runs that a stream counts; boxes with more loops move at once."""

IDLE = -(1 << 30)
"""The value of a scheduler's gate while nothing waits: no tile takes that many cycles."""


class Stream:
    """The registers of one operand's move.

    ``runs`` says what kind of box it is: which of its numbers are known; ``start`` gives the rest.
    ``pause`` is how many cycles pass after the issue slot of a transfer until the next one is due.
    """

    def __init__(
        self,
        e: Emitter,
        text: str,
        runs: Runs,
        element: int,
        pause: int = 0,
    ) -> None:
        self.pause = pause
        runs = _looped(runs)
        self.e, self.text, self.runs, self.element = e, text, runs, element
        self.left = e.register()
        """Transfers left in the innermost loop over runs."""
        self.chip, self.main = e.register(), e.register()
        count = runs.elements
        self.size: Value = count if isinstance(count, int) else e.register()
        self.outer: Register | None = None
        if len(runs.loops) > 1:
            count, stride = runs.loops[1]
            self.outer = e.register()
            self.inner: Value = count if isinstance(count, int) else e.register()
            self.forward: Value = (
                runs.loops[0][1] - count * stride if isinstance(count, int) else e.register()
            )

    def reset(self) -> None:
        """Nothing is to be moved."""
        self.e.set(self.left, 0)

    def start(self, runs: Runs, base: Value) -> None:
        """Take up a box's runs."""
        e, runs = self.e, _looped(runs)
        e.set(self.chip, base)
        e.set(self.main, runs.address)
        self._fill(self.size, runs.elements)
        count, stride = runs.loops[-1]
        e.set(self.left, count)
        if self.outer is not None:
            rows, down = runs.loops[0]
            e.set(self.outer, rows)
            self._fill(self.inner, count)
            self._fill(self.forward, e.subtract(down, e.multiply(count, stride)))

    def _fill(self, place: Value, value: Value) -> None:
        if isinstance(place, Register):
            self.e.set(place, value)

    def transfer(self) -> None:
        """One transfer of those that are left."""
        e = self.e
        e.emit(self.text, self.chip, e.reg(self.size), self.main, self.runs.offset)
        e.increase(self.chip, e.multiply(self.size, self.element))
        e.increase(self.main, self.runs.loops[-1][1])
        e.emit("SSUB", self.left, self.left, 1)
        if self.outer is None:
            return
        row, more = e.label("row"), e.label("more")
        e.emit("CB", self.left, row)
        e.increase(self.main, self.forward)
        e.emit("SSUB", self.outer, self.outer, 1)
        e.emit("CB", self.outer, more)
        e.jump(row)
        e.place(more)
        e.set(self.left, self.inner)
        e.place(row)

    def flush(self) -> None:
        """All that is left: mostly nothing, so that its code stands apart."""
        e = self.e
        again, done = e.label("drain"), e.label("drained")
        e.emit("CB", self.left, again)
        e.place(done)
        with e.outlined():
            e.place(again)
            self.transfer()
            e.emit("CB", self.left, again)
            e.jump(done)


def _looped(runs: Runs) -> Runs:
    """A single run as a loop over one."""
    return runs if runs.loops else replace(runs, loops=((1, 0),))


class TransferScheduler:
    """The streams of a kernel and their issue slots; ``gate`` counts the cycles until one is due.

    ``interval`` is how far slots are apart that do not say it themselves; without one, slots
    are no measure of time, and each is due.
    """

    def __init__(
        self,
        e: Emitter,
        streams: Sequence[Stream],
        gate: Register,
        interval: float | None = None,
    ) -> None:
        self.e, self.streams, self.gate = e, streams, gate
        self.interval = 1.0 if interval is None else interval

    def reset(self) -> None:
        """Nothing is to be moved."""
        for stream in self.streams:
            stream.reset()
        self.e.set(self.gate, IDLE)

    def begin(self) -> None:
        """A stream has started: the next slot is due."""
        self.e.set(self.gate, 0)

    def issue_slot(self, cycles: float | None = None) -> None:
        """One transfer, if one is left and due: two cycles where none is.

        It stands ``cycles`` cycles after the slot before.
        """
        e = self.e
        go, back = e.label("move"), e.label("moved")
        e.increase(self.gate, max(round(self.interval if cycles is None else cycles), 1))
        e.emit("CB", self.gate, go)
        e.place(back)
        with e.outlined():
            labels = [e.label("stream") for _ in self.streams]
            # Mostly the first one has something to move: that branch leads backwards.
            for stream, label in zip(self.streams, labels, strict=True):
                e.place(label)
                stream.transfer()
                e.set(self.gate, -stream.pause)
                e.jump(back)
            e.place(go)
            for stream, label in zip(self.streams, labels, strict=True):
                e.emit("CB", stream.left, label)
            e.set(self.gate, IDLE)
            e.jump(back)


def streamed(runs: Runs, single: bool) -> bool:
    """Return True if a stream counts a box's runs; for one run only if ``single``."""
    several = any(count != 1 for count, _ in runs.loops)
    return (several or single) and len(runs.loops) <= MAX_LOOPS
