"""take-steps: operators that front-ends took apart become their steps."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.operation import Operation
from tilewright.graph.operations.written import WrittenOp
from tilewright.graph.passes.editing import erase
from tilewright.ir import Context, ModuleOp, ModulePass


@dataclass(frozen=True)
class TakeSteps(ModulePass):
    """Put the steps of each operator in its place.

    Before::

        %y = graph.resample (%x, %m, %row) ... {written = 2, axis = 1} {
        ^bb0(%0, %1, %2):
          %3 = graph.matmul %2, %0
          graph.yield %3
        }

    After::

        %y = graph.matmul %row, %x

    Constants that the operator alone read go.
    """

    name = "take-steps"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        del ctx
        for written in [step for step in network_of(op).walk() if isinstance(step, WrittenOp)]:
            _take(written)


def has_steps(module: ModuleOp) -> bool:
    """Return True if a network has operators that keep their steps."""
    return any(isinstance(op, WrittenOp) for op in network_of(module).walk())


def _take(written: WrittenOp) -> None:
    block, around = written.steps.block, written.parent
    assert around is not None
    inputs = list(written.inputs)
    for argument, value in zip(block.args, inputs, strict=True):
        argument.replace_all_uses_with(value)
    for step in list(block.ops):
        if isinstance(step, Operation):
            step.detach()
            around.insert_op_before(step, written)
    written.result.replace_all_uses_with(written.yielded)
    erase(written)
    for value in set(inputs):
        if isinstance(value.owner, WeightOp) and value.first_use is None:
            erase(value.owner)
