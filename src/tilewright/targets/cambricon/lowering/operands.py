"""The operands of a kernel: where their tensors and buffers lie, and how they are moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.codegen.program.locations import TensorPlace, dense_strides, physical_order
from tilewright.errors import refuse
from tilewright.ir.types import element_size, layout_of
from tilewright.machine import Machine
from tilewright.numerics.element_types import size_of
from tilewright.targets.cambricon.lowering.boxes import Axis, Box, Spans, axis_of, packed, runs_of
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.weights import Segments
from tilewright.tile.dialect import BufferOp


@dataclass(eq=False)
class Operand:
    """A buffer of the program and its tensor."""

    buffer: BufferOp
    machine: Machine
    bases: Mapping[str, int]
    moved_to: int | None = None
    """Address of the first slot, if that is not the buffer's address."""
    later: bool = False
    """True if the first tile goes to the second of two slots."""
    segments: Segments | None = None
    """The cut of weights that stay."""

    @property
    def name(self) -> str:
        """The name of the operand's buffer."""
        return self.buffer.symbol.data

    @property
    def role(self) -> str:
        """The operand's role in its primitive."""
        return str(self.buffer.get("role", ""))

    @cached_property
    def element(self) -> int:
        """Bytes of an element in main memory."""
        return element_size(self.buffer.result.type.of.element_type)

    @property
    def spacing(self) -> int:
        """Bytes of an element in the buffer while it is computed."""
        if self.buffer.accumulates is None:
            return self.element
        return max(self.element, size_of(self.machine.accumulator))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The logical axes, outermost first, as they lie in memory."""
        shape = self.buffer.tensor_shape
        return physical_order(layout_of(self.buffer.tensor_op.result), len(shape), self.name)

    @property
    def stays(self) -> bool:
        """True if the whole tensor lies in the buffer from kernel to kernel: nothing is moved."""
        return self.buffer.stays is not None

    @cached_property
    def place(self) -> TensorPlace:
        """The tensor in main memory, or in the memory where it stays."""
        if not self.stays:
            return TensorPlace.of(self.buffer.tensor_op, self.bases)
        shape = self.buffer.tensor_shape
        strides = dense_strides(shape, self.order, self.element)
        return TensorPlace(self.address, strides, shape, self.element)

    @property
    def slots(self) -> int:
        """Slots of the buffer."""
        return self.buffer.slot_count

    @property
    def places(self) -> int:
        """Slots that tiles go to in turn: two at most."""
        return min(self.slots, 2)

    @property
    def bytes(self) -> int:
        """The bytes of all slots together."""
        return self.slots * self.slot_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return int(self.buffer.get("bytes"))

    @property
    def address(self) -> int:
        """Address of the first slot in its scratchpad."""
        return int(self.buffer.get("address")) if self.moved_to is None else self.moved_to

    @property
    def first(self) -> int:
        """Address of the slot that takes the first tile."""
        return self.address + self.later * self.slot_bytes

    def lies(self, e: Emitter, spans: Spans, extents: Mapping[str, int]) -> Value:
        """Address of a tile's box of a tensor that stays: one run (planning/space/residents.py)."""
        if self.segments is not None:
            return e.add(self.address, self.segments.address(e, spans))
        runs = runs_of(e, self.box(e, spans, extents), self.place, self.order)
        if any(count != 1 for count, _ in runs.loops):
            raise refuse("lower-held", "a tile of what stays is several runs of it", self.name)
        return e.add(runs.address, runs.offset)

    def axis(self, number: int, e: Emitter, spans: Spans, extents: Mapping[str, int]) -> Axis:
        """One axis of the box of a tile."""
        extent = self.buffer.tensor_shape[number]
        return axis_of(e, self.buffer.window.data[number], extent, spans, extents)

    def box(
        self,
        e: Emitter,
        spans: Spans,
        extents: Mapping[str, int],
    ) -> Box:
        """The box of a tile, with strides of elements as main memory has them."""
        shape = self.buffer.tensor_shape
        axes = [self.axis(number, e, spans, extents) for number in range(len(shape))]
        return packed(e, axes, self.order, self.element)
