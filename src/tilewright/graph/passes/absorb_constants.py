"""absorb-constants: the constants that a loop reads in all rounds become a part of its body."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.operations import LoopOp
from tilewright.ir import Context, ModuleOp, ModulePass


@dataclass(frozen=True)
class AbsorbConstants(ModulePass):
    """Give the body of every loop the weights that it is handed as operands.

    Before::

        %w = graph.weight {symbol = "w"}
        %y = graph.loop (%h, %w) ... {carried = 1} {
        ^bb0(%state, %given):
          %new = graph.matmul %state, %given

    After::

        %y = graph.loop (%h) ... {carried = 1} {
        ^bb0(%state):
          %w = graph.weight {symbol = "w"}
          %new = graph.matmul %state, %w

    A body is compiled as a network of its own, and what is constant there can be folded, packed,
    and kept on the chip. The first values of what is carried, and sequences, stay operands.
    """

    name = "absorb-constants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        del ctx
        for loop in network_of(op).walk():
            if isinstance(loop, LoopOp):
                _absorb(loop)


def _absorb(loop: LoopOp) -> None:
    block, first = loop.body.block, loop.states + len(loop.sequences)
    kept = list(loop.inputs[:first])
    for value, argument in list(zip(loop.inputs, block.args, strict=True))[first:]:
        if not isinstance(value.owner, WeightOp):
            kept.append(value)
            continue
        weight = WeightOp.of(value.owner.symbol.data, value.owner.result.type)
        assert block.first_op is not None
        block.insert_op_before(weight, block.first_op)
        argument.replace_all_uses_with(weight.result)
        block.erase_arg(argument)
    loop.operands = kept
