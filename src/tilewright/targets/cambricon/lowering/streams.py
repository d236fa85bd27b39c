"""Moves of many transfers, one at a time between the instructions of a tile.

The queue is in order: a transfer that waits for the one before it holds up all behind it. So of a
box with several runs only one transfer is started at a time, where the code of a tile has a
**hook**: by the next hook it is over. What is left when the tile is done follows at once.
"""

from __future__ import annotations

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.moves import Runs

MAX_LOOPS = 2
"""Loops over runs that a stream keeps count of; boxes with more move at once."""


class Stream:
    """The registers of one operand's move; ``spare`` is one that all streams share.

    ``runs`` says what kind of box it is: which of its numbers are known; ``start`` gives the rest.
    """

    def __init__(self, e: Emitter, text: str, runs: Runs, element: int, spare: Register) -> None:
        self.spare = spare
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
        e = self.e
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

    def hook(self, back: str) -> None:
        """One transfer, if one is left, then to ``back``: one cycle where none is."""
        e = self.e
        go = e.label("move")
        e.emit("CB", self.left, go)

        def block() -> None:
            e.place(go)
            self._transfer()
            e.jump(back)

        e.apart(block)

    def _transfer(self) -> None:
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

    def drain(self) -> None:
        """All that is left."""
        e = self.e
        again, done = e.label("drain"), e.label("drained")
        with e.scope():
            e.if_positive(e.subtract(1, self.left), done)
        e.place(again)
        self._transfer()
        e.emit("CB", self.left, again)
        e.place(done)


def streamed(runs: Runs) -> bool:
    """Whether a box has several runs, in loops that a stream keeps count of."""
    loops = [count for count, _ in runs.loops if count != 1]
    return len(loops) > 0 and len(runs.loops) <= MAX_LOOPS
