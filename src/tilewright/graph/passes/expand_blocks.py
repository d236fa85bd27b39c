"""expand-blocks: matrices in blocks become floats."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.blocked import BlockGatherOp, BlockMatMulOp, BlockOperation
from tilewright.graph.passes.editing import Rewriter, compiler, operations_of, producer, sweep
from tilewright.ir import Context, ModuleOp, ModulePass


@dataclass(frozen=True)
class ExpandBlocks(ModulePass):
    """Let products with matrices in blocks be those of floats, for machines without such products.

    Before::

        %1 = graph.block_round %x {block = 32}
        %2 = graph.block_matmul %1, %codes, %scales {bits = 4, block = 32, zero = 8}

    After::

        %2 = graph.matmul %x, %w

    A table of which rows are looked up becomes one of floats, too.
    """

    name = "expand-blocks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context, network = compiler(ctx), network_of(op)
        for step in operations_of(op):
            if isinstance(step, BlockOperation):
                _expand(step, Rewriter(context, step))
        sweep(network)


def _expand(op: Operation, at: Rewriter) -> None:
    first = 0 if isinstance(op, BlockGatherOp) else 1
    arrays = [at.constant(value) for value in op.inputs[first : first + 2]]
    codes, scales = arrays
    if codes is None or scales is None or not isinstance(op, BlockGatherOp | BlockMatMulOp):
        return
    rows = op.weight(codes, scales).rows()
    if isinstance(op, BlockGatherOp):
        at.replace(at.make("gather", at.weight(rows, "table"), op.inputs[2], axis=0))
        return
    rounded = producer(op.inputs[0], "block_round")
    if rounded is not None:
        at.replace(at.make("matmul", rounded.inputs[0], at.weight(rows.T.copy(), "weight")))
