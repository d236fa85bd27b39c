"""Rows of an image that has one slot: each comes when the row whose place it takes is done with.

Tiles that go down an image share rows where windows overlap. The places of rows are taken in turn,
so that these stay where they are, and each row of results takes only the rows that it has more than
the one before::

    places           0   1   2   3        windows of 3 rows, 2 of them a tile
    tile 0           0   1   2   3
    tile 1           4   5   2   3        4 comes behind the first row of results of tile 0,
                                          5 behind the second one, beside the first one of tile 1

Where loops within the image's residency step through channels of the result, rows are free behind
the last of these tiles. A window may begin near the last place and go on at the first one: from a
row of the kernel to the next it is as far as registers say, which each row of results fills.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.windows import Body, Windows

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.image_rows import ImageRows
    from tilewright.targets.cambricon.lowering.walk import Walk

NONE = -(1 << 20)
"""Rows that may come when all have."""


class RowRing:
    """The loads of such rows in a flat loop: a stream that is announced row by row."""

    def __init__(self, walk: Walk, image: ImageRows) -> None:
        self.walk, self.image, self.pause = walk, image, image.pause
        e = self.e = walk.e
        self.waiting = e.register()
        """Rows that may come: their places are free."""
        self.coming = e.register()
        """The number of the next one."""
        self.chip = e.register()

    def reset(self) -> None:
        """Before the first tile, whose rows come together."""
        e, image = self.e, self.image
        e.set(self.waiting, image.places - image.reach if image.total > image.first else NONE)
        e.set(self.coming, image.first)
        e.set(self.chip, image.operand.address + image.first % image.places * image.row_bytes)

    def load_first(self) -> None:
        """The rows of the first tile."""
        e, image = self.e, self.image
        with e.scope():
            e.remark(f"load {image.operand.name}")
            size = e.loaded(image.first * image.row_bytes // image.operand.element)
            e.emit(image.text, e.loaded(image.operand.address), size, e.loaded(0), image.main)

    def wrap(self, at: Register) -> None:
        """Behind the last place follows the first one."""
        e, image = self.e, self.image
        with e.scope():
            over = e.register()
            e.emit("SGT", over, at, image.end - 1)
            e.emit("SMUL", over, over, image.places * image.row_bytes)
            e.emit("SSUB", at, at, over)

    def transfer(self) -> None:
        """The next row."""
        e, image, more = self.e, self.image, self.e.label("rows")
        with e.beside(), e.scope():
            e.remark(f"load {image.operand.name}, a row")
            size = e.variable(image.row_bytes // image.operand.element)
            main = e.register()
            e.emit("SMUL", main, self.coming, image.row_bytes)
            e.emit(image.text, self.chip, size, main, image.main)
            e.increase(self.chip, image.row_bytes)
            self.wrap(self.chip)
            e.increase(self.coming, 1)
            e.emit("SSUB", self.waiting, self.waiting, 1)
            e.if_less(self.coming, image.total, more)
            e.set(self.waiting, NONE)
        e.place(more)

    def wanted(self, first: Register) -> None:
        """Before a row of results whose windows begin at row ``first``: theirs come now, if they
        have not."""
        e, image = self.e, self.image
        again, done = e.label("wait"), e.label("there")

        def missing() -> None:
            e.if_positive(e.add(e.subtract(first, self.coming), image.rows.span), again)

        with e.scope():
            missing()
        e.place(done)

        def block() -> None:
            e.place(again)
            with e.beside(), e.scope():
                e.if_less(image.total - 1, self.coming, done)
            self.transfer()
            with e.beside(), e.scope():
                missing()
            e.jump(done)

        e.apart(block)

    def leave(self) -> None:
        """Behind a row of results: the rows that no other one meets may be replaced, if the step to
        the next tile, which has been taken, leads to other rows."""
        e, same, go = self.e, self.e.label("same"), self.e.label("free")
        flat = self.walk.flat
        assert flat is not None
        flat.turn()
        with e.scope():
            last = e.register()
            e.emit("SE", last, flat.level, 0)
            e.emit("CB", last, go)
        e.place(same)

        def block() -> None:
            e.place(go)
            e.increase(self.waiting, self.image.rows.stride)
            with e.beside():
                flat.agenda.join()
            e.jump(same)

        e.apart(block)


@dataclass
class RingWindows(Windows):
    """The windows of a tile in such rows."""

    ring: RowRing | None = None
    apart: list[Register] = field(default_factory=list[Register])
    """Bytes from each row of the kernel to the next, in the row of results at hand."""

    def emit(self, body: Body) -> None:
        """Emits ``body`` for every kind of run; it runs in the order of the result."""
        e, axis, ring = self.e, self.rows.along(self.box), self.ring
        assert ring is not None
        image = ring.image
        with e.scope():
            self.parts = e.settled(self._split)
            self.first, self.offset = e.settled(self._first_whole)
            self.apart += [e.register() for _ in range(1, self.rows.kernel)]
            first = e.variable(e.subtract(axis.low, axis.before))
            y = e.variable(e.subtract(0, axis.before))
            row = e.variable(e.settled(lambda: self._place(first)))
            last = e.subtract(axis.size, self.rows.span)

            def row_body() -> None:
                ring.wanted(first)
                if axis.padded:
                    self._clipped(axis, image.row_bytes, y, row, last, body)
                else:
                    self._columns(row, 0, self.rows.kernel, None, body)
                ring.leave()
                for at in (y, first):
                    e.increase(at, self.rows.stride)
                e.increase(row, image.row_bytes * self.rows.stride)
                ring.wrap(row)

            e.repeat(self.height, row_body, least=1)

    def _place(self, row: Register) -> Value:
        """The address of a row; some may lie before the image."""
        e, ring = self.e, self.ring
        assert ring is not None
        image = ring.image
        above = e.add(row, image.places)
        turns = e.multiply(e.divide(above, image.places), image.places)
        return e.add(e.multiply(e.subtract(above, turns), image.row_bytes), image.operand.address)

    def _columns(
        self, row: Register, skipped: Value, rows: Value, y: Value | None, body: Body
    ) -> None:
        e, ring = self.e, self.ring
        assert ring is not None
        image = ring.image
        if skipped != 0:
            ring.wrap(row)
        for number, step in enumerate(self.apart, 1):
            with e.scope():
                over = e.register()
                e.emit("SADD", over, row, number * image.row_bytes)
                e.emit("SE", over, over, image.end)
                e.emit("SMUL", over, over, -image.places * image.row_bytes)
                e.emit("SADD", step, over, image.row_bytes)
        super()._columns(row, skipped, rows, y, body)
