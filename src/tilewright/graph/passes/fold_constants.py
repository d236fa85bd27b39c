"""fold-constants: evaluate what depends on nothing but weights, and drop what nothing uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.operations import LoopOp, Operation
from tilewright.graph.passes.editing import (
    add_weight,
    bytes_of,
    compiler,
    constant,
    merge_weights,
    operations_of,
    replace,
    sweep,
)
from tilewright.ir import Context, ModuleOp, ModulePass
from tilewright.ir.types import element_dtype, tensor_type


@dataclass(frozen=True)
class FoldConstants(ModulePass):
    """Evaluate operations whose operands are all weights; remove dead and duplicate ones.

    Before::

        %a = graph.weight {symbol = "a"} : tensor<4xf32>
        %b = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
        %y = graph.add %x, %b : ...

    After::

        %b = graph.weight {symbol = "b"} : tensor<4xf32>
        %y = graph.add %x, %b : ...

    The meaning is the interpreter's (``evaluate``), so folding never changes a result. Results
    larger than ``maximum_bytes`` stay computed at run time, and so do operations named ``keep``.
    """

    name = "fold-constants"
    maximum_bytes: int = 1 << 28
    keep: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        compiler(ctx)
        network = network_of(op)
        for step in operations_of(op):
            if self._foldable(step):
                _fold(step, ctx)
        sweep(network)
        merge_weights(network)

    def _foldable(self, op: Operation) -> bool:
        if op.operation == self.keep or isinstance(op, LoopOp):
            return False
        known = all(isinstance(value.owner, WeightOp) for value in op.inputs)
        return known and len(op.inputs) > 0 and bytes_of(op.result) <= self.maximum_bytes


def _fold(op: Operation, ctx: Context) -> None:
    context = compiler(ctx)
    arrays = [array for value in op.inputs if (array := constant(value, context)) is not None]
    element = tensor_type(op.result).element_type
    with np.errstate(all="ignore"):
        # Infinities and NaN come out as they would at run time.
        result = np.asarray(op.evaluate(*arrays), element_dtype(element))
    replace(op, add_weight(context, result, op, op.node_name or "constant", element))
