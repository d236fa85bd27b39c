"""Steps of gradients that are no operations of forward networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.operations.base import Operation, Type, definition
from tilewright.ir.types import Array
from tilewright.numerics import reference
from tilewright.planning.domain import Stage


@definition
class MaximumGradientOp(Operation):
    """The gradients of values of which the greatest is taken: [n, j, p] of [n, j + 2, p].

    The operand holds j values, the greatest of them, and its gradient. The first value that is no
    less than the greatest takes the gradient, the last one if no other is; the rest get 0.
    """

    name = "graph.maximum_gradient"

    def infer(self, types: Sequence[Type]) -> Type:
        """Two steps fewer along the second axis."""
        self.check_operands(types)
        shape = types[0].get_shape()
        self.need(len(shape) == 3, f"takes rank 3, has shape {list(shape)}")
        self.need(shape[1] >= 3, f"{shape[1]} steps hold no value, its greatest and its gradient")
        return self.result_of((shape[0], shape[1] - 2, shape[2]), types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Exact for every element type."""
        return reference.maximum_gradient(np.asarray(arrays[0]))

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, j, p | k: k runs through all that is given, j through the values."""
        return self.nest(operands, result, "n k p -> n j p")
