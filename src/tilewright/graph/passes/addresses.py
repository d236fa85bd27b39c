"""The memory of every value of a network: its own, or part of another value's."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.views import JoinOperation, SliceOp
from tilewright.graph.passes.strides import (
    Box,
    dense_box,
    parse,
    reshape_box,
    slice_box,
    transpose_box,
)
from tilewright.ir import SSAValue
from tilewright.ir.types import layout_of, shape_of
from tilewright.numerics.operators import has


@dataclass(frozen=True)
class Address:
    """A box in the memory of ``root``; offset and strides in elements."""

    root: SSAValue
    box: Box


@dataclass
class Addresses:
    """Addresses of all values of a network.

    The operands of a join are parts of its result where they can be; reshapes, transposes and
    slices are other readings of their operand. Everything else has memory of its own.
    """

    network: NetworkOp
    parts: dict[SSAValue, tuple[JoinOperation, int]] = field(
        default_factory=dict[SSAValue, tuple[JoinOperation, int]]
    )
    """Operand -> the join whose part it is, and which."""
    but: frozenset[JoinOperation] = frozenset()
    """Joins that are left out, as if each had a tensor of its own for its result."""
    _known: dict[SSAValue, Address | None] = field(default_factory=dict[SSAValue, Address | None])
    _ranges: dict[JoinOperation, list[list[range]]] = field(
        default_factory=dict[JoinOperation, list[list[range]]]
    )
    """The ranges of the result that each operand of a join fills, computed once for all
    operands."""

    def __post_init__(self) -> None:
        for op in self.network.block.ops:
            if not isinstance(op, JoinOperation) or op in self.but:
                continue
            whole = dense_box(layout_of(op.result), shape_of(op.result))
            for index, (value, part) in enumerate(zip(op.inputs, self._parts_of(op), strict=True)):
                if value not in self.parts and self._can_be_part(op, value, part, whole):
                    self.parts[value] = (op, index)

    def _parts_of(self, join: JoinOperation) -> list[list[range]]:
        if join not in self._ranges:
            self._ranges[join] = join.parts()
        return self._ranges[join]

    @staticmethod
    def _can_be_part(join: JoinOperation, value: SSAValue, part: list[range], whole: Box) -> bool:
        """Return True if whoever computes an operand could write it into the result."""
        owner = value.owner
        computed = isinstance(owner, KernelOp | JoinOperation)
        if not computed or layout_of(value) != layout_of(join.result):
            return False
        scattered = isinstance(owner, KernelOp) and owner.scattered is not None
        return slice_box(whole, part, scattered=scattered) is not None

    def of(self, value: SSAValue) -> Address | None:
        """The address of a value; None if it is a view that no strides describe."""
        if value not in self._known:
            self._known[value] = self._find(value)
        return self._known[value]

    def is_part(self, join: JoinOperation, index: int, value: SSAValue) -> bool:
        """Return True if a join's operand ``value`` lies where the result wants it."""
        return self.parts.get(value) == (join, index)

    def _find(self, value: SSAValue) -> Address | None:
        owner = value.owner
        if value in self.parts:
            join, index = self.parts[value]
            parent = self.of(join.result)
            if parent is None:
                return None
            scattered = isinstance(owner, KernelOp) and owner.scattered is not None
            part = slice_box(parent.box, self._parts_of(join)[index], scattered=scattered)
            return None if part is None else Address(parent.root, part)
        if isinstance(owner, Operation) and has(owner.operation, "view"):
            source = self.of(owner.inputs[0])
            view = None if source is None else _view(owner, source.box)
            return None if source is None or view is None else Address(source.root, view)
        return Address(value, dense_box(layout_of(value), shape_of(value)))


def _view(op: Operation, box: Box) -> Box | None:
    shape = shape_of(op.result)
    layout = parse(layout_of(op.result), len(shape))
    match op.operation:
        case "reshape":
            return reshape_box(box, shape, layout)
        case "transpose":
            return transpose_box(box, op.integers("permutation"), layout)
        case "slice":
            assert isinstance(op, SliceOp)
            box_of_view = slice_box(box, op.ranges(box.shape))
            return box_of_view if box_of_view is None or box_of_view.layout == layout else None
        case _:
            return None
