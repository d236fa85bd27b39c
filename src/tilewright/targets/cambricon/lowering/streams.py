"""Moves that wait for issue slots: one transfer at a time between the instructions of a tile.

The queue is in order: a transfer that waits for the one before it holds up all behind it. So only
one transfer is started at a time, where the code of a tile has an **issue slot**, and the next one
not before the products between slots have taken as long as it is likely to. What is left when the
tile is done follows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.moves import Runs

MAX_LOOPS = 2
"""Loops over runs that a stream keeps count of; boxes with more move at once."""

EARLY = 0.5
"""Part of the way between two issue slots by which a transfer may have to wait for the one before:
a little early does little harm, products still run. The next one is due so much later then."""

IDLE = -(1 << 30)
"""What a scheduler's gate holds while nothing waits: no tile takes so many cycles."""


class Stream:
    """The registers of one operand's move; ``spare`` is one that all streams share.

    ``runs`` says what kind of box it is: which of its numbers are known; ``start`` gives the rest.
    ``pause`` is how many cycles pass after the issue slot of a transfer until the next one is due.
    """

    def __init__(
        self,
        e: Emitter,
        text: str,
        runs: Runs,
        element: int,
        spare: Register,
        pause: int = 0,
    ) -> None:
        self.spare, self.pause = spare, pause
        runs = _looped(runs)
        self.e, self.text, self.runs, self.element = e, text, runs, element
        self.left = e.register()
        """Transfers left in the innermost loop over runs."""
        self.waiting = self.left
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
            with e.scope():
                self._fill(self.forward, e.subtract(down, e.multiply(count, stride)))

    def _fill(self, place: Value, value: Value) -> None:
        if isinstance(place, Register):
            self.e.set(place, value)

    def transfer(self) -> None:
        """One transfer of those that are left."""
        # It stands apart, where no register is known to be free but the spare one.
        e, spare = self.e, self.spare
        if isinstance(self.size, int):
            e.set(spare, self.size)
            e.emit(self.text, self.chip, spare, self.main, self.runs.offset)
            e.increase(self.chip, self.size * self.element)
        else:
            e.emit(self.text, self.chip, self.size, self.main, self.runs.offset)
            e.emit("SMUL", spare, self.size, self.element)
            e.increase(self.chip, spare)
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
        """All that is left."""
        flush(self)


class PixelStore:
    """The store of single pixels: each is a transfer, and may leave when it is finished.

    Pixels are announced one late, by the products of the next one, so the last of a tile is so in
    the next tile. The box of a tile is taken up when that of the tile before has left.
    """

    def __init__(self, stream: Stream, begin: Callable[[], None]) -> None:
        """``begin`` takes up the box of the tile that is computed."""
        self.e, self.stream, self.begin = stream.e, stream, begin
        self.pause = stream.pause
        self.waiting = self.e.register()
        """Pixels that may leave."""

    def reset(self) -> None:
        """Nothing is to be moved."""
        self.stream.reset()
        self.e.set(self.waiting, -1)

    def announce(self) -> None:
        """Another pixel is done."""
        self.e.increase(self.waiting, 1)

    def transfer(self) -> None:
        """Emit the transfer of the next pixel."""
        e, known = self.e, self.e.label("known")
        e.emit("CB", self.stream.left, known)
        with e.beside(), e.scope():
            self.begin()
        e.place(known)
        self.stream.transfer()
        e.emit("SSUB", self.waiting, self.waiting, 1)

    def leave(self, pixels: Value) -> None:
        """Behind a tile of so many pixels: at least one of them leaves, and all before them."""
        e = self.e
        again, done = e.label("leave"), e.label("left")
        with e.scope():
            e.if_less(e.subtract(pixels, 2), self.waiting, again)
        e.place(done)

        def block() -> None:
            e.place(again)
            self.transfer()
            with e.beside(), e.scope():
                e.if_less(e.subtract(pixels, 2), self.waiting, again)
            e.jump(done)

        e.apart(block)

    def flush(self) -> None:
        """Behind the last tile, whose last pixel nothing has announced."""
        self.announce()
        flush(self)


def flush(stream: Waiting) -> None:
    """Transfers while one waits: mostly none does, so that they stand apart."""
    e = stream.e
    again, done = e.label("drain"), e.label("drained")
    e.emit("CB", stream.waiting, again)
    e.place(done)

    def block() -> None:
        e.place(again)
        stream.transfer()
        e.emit("CB", stream.waiting, again)
        e.jump(done)

    e.apart(block)


def _looped(runs: Runs) -> Runs:
    """A single run as a loop over one."""
    return runs if runs.loops else replace(runs, loops=((1, 0),))


class Waiting(Protocol):
    """Transfers that wait for issue slots, one at a time."""

    e: Emitter
    waiting: Register
    """Positive while one waits."""
    pause: int
    """Cycles from one to the next."""

    def reset(self) -> None:
        """Nothing is to be moved."""
        ...

    def transfer(self) -> None:
        """Emit the next transfer of the stream."""
        ...


class TransferScheduler:
    """The streams of a kernel and their issue slots; ``gate`` counts the cycles until one is due.

    ``interval`` is how far slots are apart that do not say it themselves; without one, slots
    are no measure of time, and each is due. What is ``announced`` is looked for at every slot.
    """

    def __init__(
        self,
        e: Emitter,
        streams: Sequence[Waiting],
        gate: Register,
        interval: float | None = None,
        *,
        announced: bool = False,
    ) -> None:
        self.e, self.streams, self.gate = e, streams, gate
        self.interval = 1.0 if interval is None else interval
        self.idle = 0 if announced else IDLE

    def reset(self) -> None:
        """Nothing is to be moved."""
        for stream in self.streams:
            stream.reset()
        self.e.set(self.gate, self.idle)

    def begin(self, pause: int = 0) -> None:
        """A stream has started: the next slot is due, or the one after so many cycles."""
        self.e.set(self.gate, -pause)

    def issue_slot(self, cycles: float | None = None) -> None:
        """One transfer, if one is left and due: two cycles where none is.

        It stands so many ``cycles`` after the slot before.
        """
        e = self.e
        go, back = e.label("move"), e.label("moved")
        e.increase(self.gate, max(round(self.interval if cycles is None else cycles), 1))
        e.emit("CB", self.gate, go)
        e.place(back)

        def block() -> None:
            labels = [e.label("stream") for _ in self.streams]
            # Mostly the first one has something to move: that branch leads backwards.
            for stream, label in zip(self.streams, labels, strict=True):
                e.place(label)
                stream.transfer()
                self._pause(stream.pause)
                e.jump(back)
            e.place(go)
            for stream, label in zip(self.streams, labels, strict=True):
                e.emit("CB", stream.waiting, label)
            e.set(self.gate, self.idle)
            e.jump(back)

        e.apart(block)

    def _pause(self, pause: int) -> None:
        """Until the transfer that has started is over: it waits as long as it was early."""
        e, early = self.e, int(EARLY * self.interval)
        if not pause or early < 2:
            e.set(self.gate, -pause)
            return
        with e.beside(), e.scope():
            # A gate of more than that says that the one before is over.
            # The smaller of 0 and gate - early; the number gets a register if one is free.
            later, some = e.register(), e.register()
            e.emit("SGT", some, e.loaded(early), self.gate)
            e.emit("SADD", later, self.gate, -early)
            e.emit("SMUL", later, later, some)
            e.emit("SADD", self.gate, later, -pause)


def streamed(runs: Runs, single: bool) -> bool:
    """Return True if a stream counts a box's runs; for one run only if ``single``."""
    several = any(count != 1 for count, _ in runs.loops)
    return (several or single) and len(runs.loops) <= MAX_LOOPS


def pause_of(cycles: float, interval: float) -> int:
    """Cycles from a transfer that takes so many until the next one is due, at whole issue slots."""
    return max(int(cycles - EARLY * interval), 0)
