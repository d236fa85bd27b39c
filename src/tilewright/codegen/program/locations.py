"""The addresses and strides of operands' boxes in buffers and in main memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.codegen.words import Column
from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.ir.types import element_size, layout_of, shape_of
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.circular import Circle, circle_of
from tilewright.tile.dialect import BufferOp, MoveOp, TensorOp
from tilewright.tile.iteration import Order
from tilewright.tile.queues import Command


def physical_order(layout: str, rank: int, where: str) -> tuple[int, ...]:
    """The logical axis of each physical axis; refuses layouts that cut axes into blocks."""
    factors = Layout.parse(layout, rank).factors
    if any(factor.modulus or factor.divisor != 1 for factor in factors):
        raise refuse(
            "lower-layout",
            f"layout {layout} has blocks; the instructions address whole axes",
            where,
            "a layout such as NHWC in the machine's description",
        )
    return tuple(factor.axis for factor in factors)


def dense_strides(shape: Sequence[int], order: Sequence[int], element: int) -> tuple[int, ...]:
    """Bytes from one index to the next along each logical axis, for a dense array."""
    strides, step = [0] * len(shape), element
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def dim_stride(window: Sequence[Affine], strides: Sequence[int], dim: str) -> int:
    """Bytes by which an operand's address grows with a dim."""
    return sum(
        coefficient * stride
        for axis, stride in zip(window, strides, strict=True)
        for name, coefficient in axis.terms
        if name == dim
    )


@dataclass(frozen=True)
class TensorPlace:
    """A tensor in main memory."""

    address: int
    strides: tuple[int, ...]
    """Bytes along each logical axis."""
    shape: tuple[int, ...]
    element: int

    @classmethod
    def of(cls, op: TensorOp, bases: Mapping[str, int]) -> TensorPlace:
        """Place of a tensor whose arena starts at ``bases[arena]``."""
        where = op.symbol.data
        shape = shape_of(op.result)
        kind = op.result.type.element_type
        element = element_size(kind)
        order = physical_order(layout_of(op.result), len(shape), where)
        if op.arena is None:
            raise refuse("lower-place", "the tensor has no place in main memory", where)
        arena = op.arena.data
        if arena not in bases:
            raise refuse("lower-place", f"there is no arena {arena}", where)
        strides = dense_strides(shape, order, element)
        if op.strides is not None:
            element_strides = op.get("strides")
            steps = list(strides)
            for axis, stride in zip(order, element_strides, strict=True):
                steps[axis] = int(stride) * element
            strides = tuple(steps)
        offset = 0 if op.offset is None else op.get("offset")
        return cls(bases[arena] + offset, strides, shape, element)

    @property
    def range(self) -> tuple[int, int]:
        """Address of the first byte, and of the byte after the last."""
        span = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        return self.address, self.address + span + self.element


class BufferPlace:
    """A buffer of a program: where its boxes lie in its memory."""

    def __init__(self, op: BufferOp, order: Order, accumulator: int) -> None:
        self.op = op
        self.order = order
        self.memory = op.memory
        self.name = op.symbol.data
        self.element = element_size(op.result.type.of.element_type)
        self.spacing = max(self.element, accumulator) if op.accumulates else self.element
        if op.address is None or op.bytes is None:
            raise refuse("lower-place", "the buffer has no address", op.symbol.data)
        shape = tuple(int(n) for n in op.get("shape"))
        axes = physical_order(layout_of(op.result.type.of), len(shape), op.symbol.data)
        self.strides = dense_strides(shape, axes, self.spacing)
        self.address = int(op.get("address"))
        self.bytes = int(op.get("bytes"))

    @property
    def range(self) -> tuple[int, int]:
        """First byte of the first slot, and first after the last slot."""
        return self.address, self.address + self.bytes * self.op.places

    @cached_property
    def circle(self) -> Circle:
        """The rows of a circular buffer, per run of the block in which it stands."""
        block = self.op.parent_block()
        assert block is not None
        return circle_of(self.op, self.order.block(block))

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes that the buffer holds, per run of the block in which it stands."""
        block = self.op.parent_block()
        assert block is not None
        return box_columns(self.op.window.data, self.op.tensor_shape, self.order.block(block))

    def moved_by(self, op: MoveOp) -> Boxes:
        """The boxes that the executions of a move carry: the buffer's, or parts of them."""
        return box_columns(self.op.window.data, self.op.tensor_shape, self.order.rows(op))

    def read_by(self, op: MoveOp) -> Boxes:
        """The boxes of the tensor, or of the buffer further out, that its executions touch."""
        return box_columns(self.op.outer_window, self.op.outer_shape, self.order.rows(op))

    def seen_by(self, op: Command, visit: Column | None = None) -> Seen:
        """The buffer as the executions of a command see it."""
        number = self.order.visit(self.op, op) if visit is None else visit
        return Seen(self, number)


@dataclass(frozen=True)
class Seen:
    """A buffer in every execution of one command: which filling, and where its box begins."""

    place: BufferPlace
    visit: Column

    @property
    def start(self) -> Any:
        """First index held along each axis, of shape (axes, executions)."""
        return self.place.boxes.clamped_start[:, self.visit]

    @property
    def lengths(self) -> Any:
        """Indices held along each axis, of shape (axes, executions)."""
        return self.place.boxes.clamped_size[:, self.visit]

    @property
    def base(self) -> Column:
        """Address of the slot."""
        slot = self.visit % self.place.op.places
        return self.place.address + slot * self.place.bytes

    def address(self, boxes: Boxes, skip: Iterable[int] = ()) -> Column:
        """Address of the first index of boxes; axes in ``skip`` stay at the buffer's own start.

        That of a circular buffer is its first byte: see ``turn``.
        """
        address = self.base
        skipped = {*skip, self.place.op.circular_axis}
        for axis, stride in enumerate(self.place.strides):
            if axis not in skipped:
                address = address + (boxes.clamped_start[axis] - self.start[axis]) * stride
        return address

    def turn(self, boxes: Boxes | None = None) -> Column:
        """In a circular buffer, the place of the first row of boxes, or of all that it holds."""
        circle, row = self.place.circle, 0
        if boxes is not None:
            row = boxes.clamped_start[circle.axis] - self.start[circle.axis]
        return (circle.places[self.visit] + row) % self.place.op.get("shape")[circle.axis]


def buffer_op(value: SSAValue, where: str) -> BufferOp:
    """The buffer that a value names; refuses operands in place."""
    owner = value.owner
    if not isinstance(owner, BufferOp):
        raise refuse("isa-in-place", "an operand has no buffer on the chip", where)
    return owner
