"""Loops under construction: a body in a block of its own, and the loop around it.

Importers append a round's operations by a ``BodyBuilder`` as they do to a network by its builder.
What these read of the network around becomes operands of the loop, constants a part of the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.frontends.emitter import Emitter, NetworkBuilder
from tilewright.frontends.moves import cut
from tilewright.graph.dialect import WeightOp, YieldOp
from tilewright.graph.operations import LoopOp
from tilewright.ir import Block, SSAValue, TensorType
from tilewright.ir.types import shape_of, tensor, tensor_type

LEAST_ROUNDS = 4
"""Rounds from which on a loop stays one: fewer are as well written out."""


@dataclass(frozen=True)
class Scanned:
    """A value of which each round reads one index along an axis."""

    value: SSAValue
    axis: int = 0
    backwards: bool = False

    @property
    def kind(self) -> TensorType[Any]:
        """The type of what a round reads."""
        kind = tensor_type(self.value)
        shape = kind.get_shape()
        return tensor((*shape[: self.axis], *shape[self.axis + 1 :]), kind.element_type)


class BodyBuilder(NetworkBuilder):
    """Appends to the body of a loop, whose arguments are the first values of what is carried, and
    one index of each sequence."""

    def __init__(
        self, around: NetworkBuilder, carried: Sequence[SSAValue], sequences: Sequence[Scanned]
    ) -> None:
        self.carried, self.sequences = tuple(carried), tuple(sequences)
        kinds = [tensor_type(value) for value in carried]
        block = Block(arg_types=[*kinds, *(item.kind for item in sequences)])
        for number, argument in enumerate(block.args):
            kept = number < len(kinds)
            argument.name_hint = f"state.{number}" if kept else f"part.{number - len(kinds)}"
        super().__init__(block, around.weights)
        self.shares = around.shares
        self.around = around

    @property
    def states(self) -> list[SSAValue]:
        """The carried values as a round reads them."""
        return list(self.block.args[: len(self.carried)])

    @property
    def parts(self) -> list[SSAValue]:
        """The indices of the sequences as a round reads them."""
        first = len(self.carried)
        return list(self.block.args[first : first + len(self.sequences)])

    def discard(self) -> None:
        """Take back all that was appended."""
        for op in reversed(list(self.block.ops)):
            op.detach()
            op.erase(safe_erase=False)

    def fits(self, states: Sequence[SSAValue], rows: Sequence[SSAValue]) -> bool:
        """Return True if a round carries what it was given the types of, and all that it yields has
        one element type."""
        values = (*states, *rows)
        same = all(
            tensor_type(new) == tensor_type(old)
            for new, old in zip(states, self.carried, strict=True)
        )
        return same and len({tensor_type(value).element_type for value in values}) == 1

    def loop(
        self,
        at: Emitter,
        rounds: int,
        states: Sequence[SSAValue],
        rows: Sequence[SSAValue],
        backwards: Sequence[bool],
    ) -> tuple[list[SSAValue], list[SSAValue]]:
        """Append the loop to the network around, for the node ``at``: the last carried values, and
        the stacks of ``rows`` along a first axis, the first round's last where ``backwards``."""
        self.block.add_op(YieldOp.build(operands=[[*states, *rows]]))
        given = self._close()
        sequences = self._used()
        operands = [*self.carried, *(item.value for item in sequences), *given]
        op = LoopOp.of(
            operands,
            self.block,
            rounds=rounds,
            carried=len(self.carried),
            axes=[item.axis for item in sequences],
            backwards=[item.backwards for item in sequences],
            stacked_backwards=backwards,
            node=at.origin,
        )
        self.around.block.add_op(op)
        at.check_size(shape_of(op.result))
        values: list[SSAValue] = []
        for start, shape in op.parts:
            part = cut(at, op.result, {0: (start, start + prod(shape), 1)})
            values.append(at.reshape(part, shape))
        return values[: len(states)], values[len(states) :]

    def _used(self) -> list[Scanned]:
        """The sequences that the body reads; erases the block arguments of the others."""
        used: list[Scanned] = []
        first = len(self.carried)
        arguments = self.block.args[first : first + len(self.sequences)]
        for item, argument in zip(self.sequences, arguments, strict=True):
            if argument.first_use is not None:
                used.append(item)
                continue
            self.block.erase_arg(argument)
        return used

    def _close(self) -> list[SSAValue]:
        """The values of the network around that the body reads, which become its arguments."""
        given: dict[SSAValue, SSAValue] = {}
        constants: dict[SSAValue, SSAValue] = {}
        for op in list(self.block.ops):
            for index, value in enumerate(op.operands):
                owner = value.owner
                if (owner if isinstance(owner, Block) else owner.parent) is self.block:
                    continue
                if isinstance(owner, WeightOp):
                    if value not in constants:
                        weight = WeightOp.of(owner.symbol.data, owner.result.type)
                        first = self.block.first_op
                        assert first is not None
                        self.block.insert_op_before(weight, first)
                        constants[value] = weight.result
                    op.operands[index] = constants[value]
                    continue
                if value not in given:
                    given[value] = self.block.insert_arg(value.type, len(self.block.args))
                    given[value].name_hint = f"given.{len(given) - 1}"
                op.operands[index] = given[value]
        return list(given)
