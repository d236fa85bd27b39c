"""The positions of rows in circular buffers, visit by visit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.errors import refuse
from tilewright.ir import integer
from tilewright.ir.types import Array
from tilewright.planning.chains.circular import first_places, new_rows, rows_in_buffer
from tilewright.planning.domain import Affine
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.dialect import BufferOp, DomainOp, all_dims, enclosing_loops
from tilewright.tile.iteration import Rows


@dataclass(frozen=True)
class Circle:
    """The rows of a circular buffer in each of its visits."""

    axis: int
    boxes: Boxes
    """The buffer's boxes, one for each visit."""
    places: Array
    """The place of each box's first row, before it is taken modulo the buffer's rows."""
    slots: int

    @property
    def sizes(self) -> Array:
        """Rows of each visit's box."""
        return self.boxes.clamped_size[self.axis]

    @property
    def new(self) -> Array:
        """The boxes of the rows that no earlier visit has left in the buffer; they are the last
        rows."""
        return new_rows(self.places, self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The least extents of the buffer along each axis."""
        largest = [int(n) for n in self.boxes.clamped_size.max(axis=1, initial=0)]
        largest[self.axis] = rows_in_buffer(self.places, self.sizes, self.slots)
        return tuple(largest)


def circle_of(buffer: BufferOp, rows: Rows) -> Circle:
    """The rows of a circular buffer; ``rows`` are those of the block in which it stands."""
    axis = buffer.circular_axis
    assert axis is not None
    boxes = box_columns(buffer.window.data, buffer.tensor_shape, rows)
    start, size = boxes.clamped_start[axis], boxes.clamped_size[axis]
    places = first_places(start, size, np.asarray(rows.run))
    return Circle(axis, boxes, places, buffer.slot_count)


def keep_rows(home: BufferOp, domain: DomainOp | None, symbol: str, ahead: str = "") -> None:
    """Leave to the next tile the rows of a producer's result that both read: ``home`` becomes
    circular, and ``domain``, which fills it, slides along the loop around it.

    ``ahead`` names a dim that no compute has: each tile has all of its indices, less one, as rows
    beyond those that it reads.

    Refuses (``schedule-invalid``) where no tile reads what another has read, or more than one axis
    moves; ``symbol`` is the kernel's.
    """
    loops, name = enclosing_loops(home), home.tensor_op.symbol.data
    if domain is None or not loops:
        reason = f"no tile reads rows of {name} that the one before has read"
        raise refuse("schedule-invalid", reason, symbol)
    dim = loops[-1].dim.data
    slides = [d for d, axis in domain.bound.items() if dim in all_dims(axis.dims, domain)]
    moved = enumerate(home.window.data)
    axes = [number for number, axis in moved if dim in all_dims(axis.dims, home)]
    if len(slides) != 1 or len(axes) != 1:
        reason = f"the loop over {dim} moves {len(axes)} axes of {name}; rows are kept along one"
        raise refuse("schedule-invalid", reason, symbol)
    home.circular = integer(axes[0])
    domain.set("sliding", tuple(slides))
    if ahead:
        window, number = list(home.window.data), axes[0]
        window[number] = _beyond(window[number], ahead)
        home.window = WindowAttr(tuple(window))
        bound = domain.bound
        bound[slides[0]] = _beyond(bound[slides[0]], ahead)
        domain.window = WindowAttr(tuple(bound.values()))


def _beyond(axis: Affine, dim: str) -> Affine:
    """The expression plus a dim, which spans as many indices more as the dim has, less one."""
    return replace(axis, terms=(*axis.terms, (dim, 1)))
