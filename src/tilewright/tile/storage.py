"""The memories of the tile interpreter: what every slot of every buffer holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.types import Array
from tilewright.tile.boxes import Box
from tilewright.tile.operations import BufferOp


@dataclass
class Content:
    """What one slot holds: a box of the tensor, as far as it has been written.

    Arrays cover the part of the box inside the tensor. ``partial`` holds the reduction where it
    has begun (``begun``) but the values are not final (``valid``). ``before`` is the visit before
    in the same slot, of which parts that nothing has been written over since may still be stored.
    """

    visit: int
    box: Box
    values: Array
    valid: NDArray[np.bool_]
    begun: NDArray[np.bool_]
    partial: Array | None = None
    before: Content | None = None

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

    def part(self, inner: Box) -> tuple[slice, ...]:
        """Where a box that lies in this one lies in the arrays."""
        return tuple(
            slice(start - low, start - low + size)
            for (low, _), (start, size) in zip(self.box.clamped, inner.clamped, strict=True)
        )

    def follow(self, before: Content) -> None:
        """Take the slot of an earlier visit."""
        before.before = None
        self.before = before

    def overwrite(self, part: tuple[slice, ...]) -> None:
        """Nothing of the visit before is left where this one is written."""
        if self.before is not None:
            self.before.valid[part] = False

    def of_visit(self, visit: int) -> Content | None:
        """This or the content before, whichever is of a visit."""
        if self.before is not None and self.before.visit == visit:
            return self.before
        return self if self.visit == visit else None


class Storage:
    """The slots of all buffers, by buffer and slot; slots at shared addresses overwrite others."""

    def __init__(self) -> None:
        self._slots: dict[tuple[BufferOp, int], Content] = {}

    def find(self, buffer: BufferOp, visit: int) -> Content | None:
        """What the slot of a visit holds, of whichever visit it is; None if nothing."""
        return self._slots.get((buffer, visit % buffer.slot_count))

    def fill(self, buffer: BufferOp, content: Content) -> None:
        """Replace what a slot holds; what lay at its addresses is gone."""
        slot = content.visit % buffer.slot_count
        place = _place(buffer, slot)
        if place is not None:
            for other, number in list(self._slots):
                there = _place(other, number)
                if other.memory != buffer.memory or there is None:
                    continue
                if there[0] < place[1] and place[0] < there[1]:
                    del self._slots[other, number]
        self._slots[buffer, slot] = content


def _place(buffer: BufferOp, slot: int) -> tuple[int, int] | None:
    """First byte and end of a slot; None before addresses are known."""
    if buffer.address is None or buffer.bytes is None:
        return None
    size = buffer.bytes.value.data
    start = buffer.address.value.data + slot * size
    return start, start + size
