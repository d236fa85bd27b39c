"""The memories of the tile interpreter: what every slot of every buffer holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.tile.iterations import Box
from tilewright.ir.types import Array
from tilewright.tile.operations import BufferOp

Index = tuple[Any, ...]
"""The index of part of a box in an array: slices, or positions along each axis."""


@dataclass
class Content:
    """The content of one slot: a box of the tensor, as far as it has been written.

    Arrays cover the part of the box inside the tensor. ``partial`` holds the reduction where it
    was ``started`` but the values are not final (``valid``). ``before`` is the visit before
    in the same slot, of which parts that nothing has been written over since may still be stored.
    """

    visit: int
    box: Box
    values: Array
    valid: NDArray[np.bool_]
    started: NDArray[np.bool_]
    partial: Array | None = None
    before: Content | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What the first move out of the slot computes of its sums."""

    @classmethod
    def empty(cls, visit: int, box: Box, dtype: np.dtype[Any]) -> Content:
        """A slot in which nothing is written yet."""
        shape = tuple(size for _, size in box.clamped)
        return cls(
            visit,
            box,
            np.zeros(shape, dtype),
            np.zeros(shape, np.bool_),
            np.zeros(shape, np.bool_),
        )

    def holds(self, part: Index) -> bool:
        """Return True if all of a part is written."""
        return bool(self.valid[part].all())

    def part(self, inner: Box) -> Index:
        """Return the index in the arrays of a box that lies in this one."""
        return tuple(
            slice(start - low, start - low + size)
            for (low, _), (start, size) in zip(self.box.clamped, inner.clamped, strict=True)
        )

    def follow(self, before: Content) -> None:
        """Take the slot of an earlier visit."""
        before.before = None
        self.before = before

    def overwrite(self, part: Index) -> None:
        """Nothing of the visit before is left where this one is written."""
        if self.before is not None:
            self.before.valid[part] = False

    def of_visit(self, visit: int) -> Content | None:
        """This or the content before, whichever is of a visit."""
        if self.before is not None and self.before.visit == visit:
            return self.before
        return self if self.visit == visit else None


@dataclass
class Circular(Content):
    """A circular buffer as one visit sees it; all visits share the arrays.

    Along ``axis`` the box's first row lies at place ``first``, modulo the arrays' size there.
    ``rows`` has the row that each place holds, counted as ``first`` is; -1 for none.
    """

    axis: int = 0
    first: int = 0
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def holds(self, part: Index) -> bool:
        """Return True if all of a part is written, and by the rows that this visit means."""
        places = part[self.axis].ravel()
        return np.array_equal(self.rows[places], self._row(places)) and super().holds(part)

    def part(self, inner: Box) -> Index:
        """Return the index in the arrays of a box that lies in this one."""
        index = [np.arange(span.start, span.stop) for span in super().part(inner)]
        index[self.axis] = (self.first + index[self.axis]) % len(self.rows)
        return np.ix_(*index)

    def overwrite(self, part: Index) -> None:
        """New rows take places: nothing is left there of the rows before."""
        places = part[self.axis].ravel()
        taken = places[self.rows[places] != self._row(places)]
        where = (slice(None),) * self.axis + (taken,)
        self.valid[where] = self.started[where] = False
        self.rows[places] = self._row(places)

    def of_visit(self, visit: int) -> Content | None:
        """This, if it is of a visit."""
        return self if self.visit == visit else None

    def _row(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.first + (places - self.first) % len(self.rows)


class Storage:
    """The slots of all buffers, by buffer and slot; slots at shared addresses overwrite others."""

    def __init__(self) -> None:
        self._slots: dict[tuple[BufferOp, int], Content] = {}

    def find(self, buffer: BufferOp, visit: int) -> Content | None:
        """Return the content of the slot of a visit, of whichever visit it is; None if nothing."""
        return self._slots.get((buffer, visit % buffer.slot_count))

    def latest(self, buffer: BufferOp) -> Content | None:
        """Return the content of the buffer's latest visit; None if nothing."""
        contents = [content for (other, _), content in self._slots.items() if other is buffer]
        return max(contents, key=lambda content: content.visit, default=None)

    def fill(self, buffer: BufferOp, content: Content) -> None:
        """Replace what a slot holds; what lay at its addresses is gone."""
        slot = content.visit % buffer.slot_count
        place = _place(buffer, slot)
        if place is not None:
            for other, number in list(self._slots):
                other_place = _place(other, number)
                if other.memory != buffer.memory or other_place is None:
                    continue
                if other is buffer and buffer.circular is not None:
                    continue
                if other_place[0] < place[1] and place[0] < other_place[1]:
                    del self._slots[other, number]
        self._slots[buffer, slot] = content


def _place(buffer: BufferOp, slot: int) -> tuple[int, int] | None:
    """First byte and end of a slot; None before addresses are known."""
    if buffer.address is None or buffer.bytes is None:
        return None
    size = buffer.bytes.value.data
    start = buffer.address.value.data + slot % buffer.places * size
    return start, start + size
