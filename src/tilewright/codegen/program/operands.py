"""A compute and its operands, in every execution: sizes of dims, addresses, strides, windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.codegen.program.locations import BufferPlace, Seen, buffer_op, dim_stride
from tilewright.codegen.words import Column
from tilewright.errors import refuse
from tilewright.planning.domain import Affine, substitute
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.dialect import BufferOp, ComputeOp, StageOp, windows_of
from tilewright.tile.iteration import Order, Rows, own_extents

Fields = dict[str, Any]
"""Field -> column, or one number for all."""


@dataclass(frozen=True)
class Computed:
    """A compute with the buffers that it reads and writes."""

    op: ComputeOp
    order: Order
    places: Callable[[BufferOp], BufferPlace]

    @property
    def where(self) -> str:
        """The kernel, for messages."""
        return self.order.program.symbol.data

    @cached_property
    def rows(self) -> Rows:
        """The executions; dims have the primitive's names."""
        return self.order.rows(self.op).renamed(self.op.dim_names)

    @property
    def anchor(self) -> StageOp:
        """The first stage of the compute operation."""
        return self.op.stages[0]

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents of the compute's dims, by the primitive's names."""
        return own_extents(self.op, self.order.program)

    def size(self, dim: str) -> Column | int:
        """Size of a dim in every execution; 1 for a dim that the compute lacks."""
        return self.rows.size(dim) if dim in self.extents else 1

    def start(self, dim: str) -> Column | int:
        """First index of a dim in every execution."""
        return self.rows.start(dim) if dim in self.extents else 0

    def operand(self, stage: StageOp, index: int) -> Operand:
        """An input of a stage, in a buffer."""
        return self._operand(stage.inputs[index], windows_of(stage)[index].data)

    @cached_property
    def output(self) -> Operand:
        """The buffer of the operation's result."""
        return self._operand(self.op.output, windows_of(self.op.stages[-1])[-1].data)

    def _operand(self, value: Any, window: Sequence[Affine]) -> Operand:
        place = self.places(buffer_op(value, self.where))
        meaning = {name: Affine(((dim, 1),)) for dim, name in self.op.dim_names.items()}
        window = [substitute(axis, meaning) for axis in window] if meaning else window
        return Operand(place, place.seen_by(self.op), window, self.rows)


@dataclass(frozen=True)
class Operand:
    """An operand of a compute: its buffer and the box of its window in every execution."""

    place: BufferPlace
    seen: Seen
    window: Sequence[Affine]
    rows: Rows

    @cached_property
    def dims(self) -> frozenset[str]:
        """The dims on which the address depends."""
        return frozenset(name for axis in self.window for name in axis.dims)

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes of the window."""
        return box_columns(self.window, self.place.op.tensor_shape, self.rows)

    def stride(self, dim: str) -> int:
        """Bytes from one index of a dim to the next; 0 if no execution has a second index.

        Such a stride may exceed the buffer, and its field: it steps to data that is elsewhere.
        """
        if dim not in self.dims or int(self.rows.size(dim).max(initial=1)) <= 1:
            return 0
        return dim_stride(self.window, self.place.strides, dim)

    def fields(self, name: str, dims: Mapping[str, str]) -> Fields:
        """Address and strides as fields ``name.axis``, where ``dims[axis]`` is the axis's dim."""
        columns: Fields = {f"{name}.address": self.seen.address(self.boxes)}
        for axis, dim in dims.items():
            columns[f"{name}.{axis}"] = self.stride(dim)
        circular = self.place.op.circular_axis
        if circular is not None:
            columns |= self.circle(name, self.boxes)
            # Rows may turn even where no execution has a second one.
            columns[f"{name}.h"] = self.place.strides[circular]
        return columns

    def circle(self, name: str, boxes: Boxes | None = None) -> Fields:
        """Return a circular buffer's number of rows and the position in it of the first row of
        ``boxes``, or of all that it holds. Refuses (``lower-place``) other axes than rows."""
        axis = self.place.op.circular_axis
        if axis is None:
            return {}
        if axis != self.axis_of(("oh",)):
            raise refuse(
                "lower-place",
                f"the buffer is circular along axis {axis}; instructions allow only rows",
                self.place.name,
            )
        shape = self.place.op.get("shape")
        return {f"{name}.circle": shape[axis], f"{name}.turn": self.seen.turn(boxes)}

    def window_fields(self, name: str) -> Fields:
        """Return the fields of an image that windows slide over: the address of what the buffer
        holds of it, its row and column strides, the window's strides and dilations, and its start:
        ``row`` of the ``rows`` held and ``column`` of ``columns``. The rest is padding."""
        fields: Fields = {}
        spatial: list[int] = []
        for axis, out, kernel, low, lengths in (
            ("h", "oh", "kh", "row", "rows"),
            ("w", "ow", "kw", "column", "columns"),
        ):
            place = self.axis_of((out, kernel))
            if place is None:
                continue
            spatial.append(place)
            terms = dict(self.window[place].terms)
            fields[f"stride.{axis}"] = terms.get(out, 1)
            fields[f"dilation.{axis}"] = terms.get(kernel, 1)
            fields[low] = self.boxes.start[place] - self.seen.start[place]
            fields[lengths] = self.seen.lengths[place]
            fields[f"{name}.{axis}"] = self.place.strides[place]
        fields[f"{name}.address"] = self.seen.address(self.boxes, skip=spatial)
        return fields | self.circle(name)

    def axis_of(self, dims: Sequence[str]) -> int | None:
        """The axis whose index depends on any of some dims."""
        for axis, expression in enumerate(self.window):
            if any(dim in expression.dims for dim in dims):
                return axis
        return None
