"""Networks of 16-bit floats: every tensor is rounded to them, arithmetic stays in float32."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import VIEWS, add_weight, constant, make, producer, use_instead
from tilewright.graph.passes.integer_sites import names_of
from tilewright.ir import Block, SSAValue, f32
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, dtype_of, tensor_type
from tilewright.numerics.element_types import ELEMENTS, Element, rounded
from tilewright.numerics.formats import Format


@dataclass
class ShortFloats:
    """Rounds the tensors of a network to a format of 16 bits.

    A tensor is what one node of the model hands to another: operations that a node was imported
    as pass float32 among themselves, as in the importer's own half-precision models. Constants of
    more than one element are kept in the format, and become float32 where they are read; beyond
    the format's largest number they saturate (masks of -3.4e38 stay finite). ``keep`` names nodes
    whose results and constants stay float32; with ``only``, all but those do.
    """

    ctx: CompilerContext
    format: Format
    keep: set[str]
    only: Collection[str] | None

    @property
    def element(self) -> Element:
        """The element type of the format."""
        return ELEMENTS[self.format.name]

    def run(self, network: NetworkOp) -> dict[SSAValue, SSAValue]:
        """Rewrite the network in place. Returns each rounded tensor's rounded value."""
        rounded: dict[SSAValue, SSAValue] = {}
        steps = network.operations
        for op in steps:
            if self._chosen(op):
                for index in range(len(op.inputs)):
                    self._constant(op, index)
        for _, value in network.inputs:
            if tensor_type(value).element_type == f32 and self.only is None:
                rounded[value] = self._round(network, value, None)
        for op in steps:
            if tensor_type(op.result).element_type != f32 or not self._chosen(op):
                continue
            if op.operation in VIEWS:
                shorts = [self._short_of(value) for value in op.inputs]
                if all(value is not None for value in shorts):
                    rounded[op.result] = self._view(op, [v for v in shorts if v is not None])
            elif _leaves_its_node(op):
                rounded[op.result] = self._round(network, op.result, op)
        return rounded

    def _chosen(self, op: Operation) -> bool:
        names = names_of(op)
        return not names & self.keep and (self.only is None or bool(names & set(self.only)))

    def _constant(self, op: Operation, index: int) -> None:
        """Keep a constant operand in the format."""
        array = constant(op.inputs[index], self.ctx)
        if array is None or array.dtype != np.float32 or array.size <= 1:
            return
        owner = op.inputs[index].owner
        assert isinstance(owner, WeightOp)
        symbol = add_weight(
            self.ctx, self._short(array), op, owner.symbol.data.rsplit("_", 1)[0]
        )  # fmt: skip
        op.operands[index] = self._cast(symbol, "float32", op, None)

    def _short(self, array: Array) -> Array:
        """An array in the format; finite numbers stay finite."""
        return rounded(array, self.element, saturate=True)

    def _round(self, network: NetworkOp, value: SSAValue, producer: Operation | None) -> SSAValue:
        """Let all readers of a value read it rounded."""
        uses, owner = list(value.uses), value.owner
        before = network.block.first_op if isinstance(owner, Block) else owner.next_op
        assert before is not None
        short = self._cast(value, self.format.name, before, producer)
        back = self._cast(short, "float32", before, producer)
        use_instead(uses, back)
        return short

    def _short_of(self, value: SSAValue) -> SSAValue | None:
        """The value in the format, if it was just made float32 again."""
        cast = producer(value, "cast")
        source = None if cast is None else cast.inputs[0]
        return source if source is not None and dtype_of(source) == self.element.dtype else None

    def _view(self, op: Operation, shorts: list[SSAValue]) -> SSAValue:
        """A view of values in the format, which then become float32 after it."""
        after = op.next_op
        assert after is not None
        view = make(op.operation, shorts, op.values, before=op, like=op)
        back = self._cast(view.result, "float32", after, op)
        use_instead(op.result.uses, back)
        return view.result

    def _cast(
        self, value: SSAValue, to: str, before: AnyOperation, like: Operation | None
    ) -> SSAValue:
        return make("cast", [value], {"to": to}, before=before, like=like).result


def _leaves_its_node(op: Operation) -> bool:
    """Return True if another node, or the network's output, reads an operation's result."""
    return any(
        isinstance(use.operation, OutputOp)
        or not isinstance(use.operation, Operation)
        or not op.node_name
        or use.operation.node_name != op.node_name
        for use in op.result.uses
    )
