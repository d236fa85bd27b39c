"""Where the rows of circular buffers lie, visit by visit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ir.types import Array
from tilewright.planning.circular import first_places, new_rows, rows_held
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.dialect import BufferOp
from tilewright.tile.iteration import Rows


@dataclass(frozen=True)
class Circle:
    """The rows of a circular buffer in each of its visits."""

    axis: int
    boxes: Boxes
    """The buffer's boxes."""
    places: Array
    """The place of each box's first row, before it is taken modulo the buffer's rows."""
    slots: int

    @property
    def sizes(self) -> Array:
        """Rows of each visit's box."""
        return self.boxes.clamped_size[self.axis]

    @property
    def new(self) -> Array:
        """Of these, the rows that no visit before has left; they are the last ones."""
        return new_rows(self.places, self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """What the buffer holds at least, along each axis."""
        largest = [int(n) for n in self.boxes.clamped_size.max(axis=1, initial=0)]
        largest[self.axis] = rows_held(self.places, self.sizes, self.slots)
        return tuple(largest)


def circle_of(buffer: BufferOp, rows: Rows) -> Circle:
    """The rows of a circular buffer; ``rows`` are those of the block in which it stands."""
    axis = buffer.circular_axis
    assert axis is not None
    boxes = box_columns(buffer.window.data, buffer.tensor_shape, rows)
    start, size = boxes.clamped_start[axis], boxes.clamped_size[axis]
    places = first_places(start, size, np.asarray(rows.run))
    return Circle(axis, boxes, places, buffer.slot_count)
