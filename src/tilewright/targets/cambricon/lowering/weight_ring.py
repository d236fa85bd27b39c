"""Weights that come row by row of the kernel, into places taken in turn.

A tile is computed row by row of the kernel (row_order.py), all of its pixels by one row before the
next. So the places of a row are free as soon as the last tile of some output channels has been
multiplied by it, and a row of the next ones' weights loads while the other rows are still at work.
With places for one more row than the kernel has::

    places          0     1     2     3
    channels 0..    0     1     2     .
    channels 64..   1'    2'    .     0'

Row 0' comes at once, 1' when the last tile of the channels before has been multiplied by row 0.
Rows lie one behind the other in main memory, those of all output channels in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.streams import Agenda, pause_of
from tilewright.tile.dialect import BufferOp

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilewright.targets.cambricon.lowering.walk import Walk

SHARED = 1.1
"""Times as long as alone, what a row's load takes beside other transfers."""

NONE = -(1 << 20)
"""Rows that may come when all have."""


class WeightRing:
    """The loads of such weights in a flat loop."""

    def __init__(self, walk: Walk, buffer: BufferOp) -> None:
        self.walk, self.buffer = walk, buffer
        self.e, self.operand = walk.e, walk.operands[buffer]
        ring = self.operand.ring
        assert ring is not None
        self.ring = ring
        e = self.e
        self.waiting = e.register()
        """Rows that may come: their places are free."""
        self.left = e.register()
        """Rows that have not come."""
        self.ended = e.register()
        """Positive from when the last one has come until the step to the next tile."""
        self.chip, self.main = e.register(), e.register()
        machine, interval = self.operand.machine, walk.interval or 1.0
        move = machine.move(machine.main, buffer.memory)
        cycles = move.latency + ring.row_bytes / move.bytes_per_cycle
        self.pause = pause_of(SHARED * cycles, interval)
        self.agenda = Agenda(e, [self], e.register(), interval)

    def reset(self) -> None:
        """Nothing is to be moved."""

    def begin(self) -> None:
        """Before all tiles: the first kernel's rows may be there already."""
        e, ring = self.e, self.ring
        there = ring.rows if self.buffer in self.walk.begun else 0
        blocks = -(-self.walk.extents[self.walk.loops[0].dim.data] // self.walk.loops[0].step_size)
        first = self.operand.address
        e.set(self.waiting, ring.places - there)
        e.set(self.left, ring.rows * blocks - there)
        e.set(self.ended, 0)
        e.set(self.chip, first + there % ring.places * ring.row_bytes)
        e.set(self.main, there * ring.row_bytes)
        self.agenda.begin()

    def taken(
        self, now: list[Register], current: Register, swap: Callable[[Register], None]
    ) -> None:
        """Behind the step to other weights: their rows are waited for where they are used."""

    def forward(self, at: Register, rows: int | None = None) -> None:
        """From a row to the one so many behind it, or to the same one of the next kernel."""
        e, ring = self.e, self.ring
        e.increase(at, (ring.rows if rows is None else rows) * ring.row_bytes)
        with e.scope():
            over = e.register()
            e.emit("SGT", over, at, self.operand.address + ring.bytes - 1)
            e.emit("SMUL", over, over, ring.bytes)
            e.emit("SSUB", at, at, over)

    def transfer(self) -> None:
        """The next row."""
        e, ring, more = self.e, self.ring, self.e.label("rows")
        assert self.walk.load_row is not None
        with e.beside(), e.scope():
            size = e.variable(ring.row_bytes // 2)
            self.walk.load_row(self.operand, self.chip, size, self.main)
            self.forward(self.chip, 1)
        e.increase(self.main, ring.row_bytes)
        e.emit("SSUB", self.waiting, self.waiting, 1)
        e.emit("SSUB", self.left, self.left, 1)
        e.emit("CB", self.left, more)
        e.set(self.waiting, NONE)
        e.set(self.ended, 1)
        e.place(more)

    def await_row(self, number: int) -> None:
        """Before the products with a row of the kernel: it comes now, if it has not."""
        e = self.e
        again, done = e.label("wait"), e.label("there")
        most = self.ring.places - 1 - number
        with e.scope():
            e.if_positive(e.add(self.waiting, -most), again)
        e.place(done)

        def block() -> None:
            e.place(again)
            self.transfer()
            with e.beside(), e.scope():
                e.if_positive(e.add(self.waiting, -most), again)
            self.agenda.begin(self.pause)
            e.jump(done)

        e.apart(block)

    def leave_row(self, level: Register) -> None:
        """Behind the products of a tile with a row of the kernel.

        Its place is free if the step to the next tile, which has been taken, leads to other
        weights.
        """
        e, same = self.e, self.e.label("same")
        go = e.label("free")
        with e.scope():
            last = e.register()
            e.emit("SE", last, level, 0)
            e.emit("CB", last, go)
        e.place(same)

        def block() -> None:
            e.place(go)
            e.increase(self.waiting, 1)
            with e.beside():
                self.agenda.join()
            e.jump(same)

        e.apart(block)

    def pass_once(self) -> None:
        """Behind a tile: when all rows have come, the scratchpad takes loads of other kernels."""
        e = self.e
        go, on = e.label("come"), e.label("on")
        e.emit("CB", self.ended, go)
        e.place(on)

        def block() -> None:
            e.place(go)
            e.set(self.ended, 0)
            with e.beside():
                self.walk.passing(True)
            e.jump(on)

        e.apart(block)
