"""join-biases: constants added to a product's columns become its bias."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import (
    add_weight,
    compiler,
    constant,
    make,
    only_user,
    operations_of,
    replace,
    sweep,
)
from tilewright.ir import Context, ModuleOp, ModulePass
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of


@dataclass(frozen=True)
class JoinBiases(ModulePass):
    """Let matrix products add what is added to their columns, since integers do so exactly.

    Before::

        %1 = graph.matmul %x, %w : (tensor<1x32x384xf32>, tensor<384x64xf32>) -> ...
        %2 = graph.add %1, %b : (..., tensor<1x1x64xf32>) -> ...

    After::

        %2 = graph.matmul %x, %w, %b : (..., tensor<64xf32>) -> ...

    Only products without a bias that nothing else reads; simplify does the same for products of
    rank 2, together with factors.
    """

    name = "join-biases"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        for step in operations_of(op):
            if step.operation == "add":
                _join(step, compiler(ctx))
        sweep(network_of(op))


def _join(op: Operation, ctx: CompilerContext) -> None:
    for index in (0, 1):
        product, array = op.inputs[index].owner, constant(op.inputs[1 - index], ctx)
        if array is None or not isinstance(product, Operation) or product.operation != "matmul":
            continue
        shape = shape_of(op.result)
        if len(product.inputs) != 2 or only_user(product.result) is not op:
            continue
        if shape_of(product.result) != shape or array.dtype.kind != "f":
            continue
        if not 0 < array.size == array.shape[-1] == shape[-1]:
            continue
        name = op.node_name or product.node_name or "matmul"
        bias = add_weight(ctx, array.reshape(-1), op, f"{name}.bias")
        biased = make("matmul", [*product.inputs, bias], product.values, before=op, like=product)
        replace(op, biased.result)
        return
