"""The builder of every importer: operations appended to a network, each constant stored once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import BY_NAME
from tilewright.graph.weights import Weights
from tilewright.ir import Block, PythonValue, SSAValue
from tilewright.ir.types import Array, element_of, tensor


class NetworkBuilder:
    """Appends operations to a network's block and constants to its weights."""

    def __init__(self, block: Block, weights: Weights) -> None:
        self.block = block
        self.weights = weights
        self._weights: dict[tuple[str, tuple[int, ...]], SSAValue] = {}

    def emit(
        self,
        operation: str,
        inputs: Sequence[SSAValue],
        attributes: Mapping[str, PythonValue],
        node: str,
    ) -> SSAValue:
        """Append an operation of the graph dialect; raises VerifyException."""
        op = BY_NAME[operation].build_from(inputs, dict(attributes), node=node)
        self.block.add_op(op)
        return op.result

    def weight(self, array: Array, hint: str) -> SSAValue:
        """The value of a constant; equal constants share one."""
        symbol = self.weights.add(array, hint)
        key = (symbol, array.shape)
        if key not in self._weights:
            op = WeightOp.of(symbol, tensor(array.shape, element_of(array.dtype)))
            self.block.add_op(op)
            self._weights[key] = op.result
        return self._weights[key]

    def placeholder(
        self, shape: Sequence[int], dtype: np.dtype[Any] | type[np.generic] = np.float32
    ) -> SSAValue:
        """A tensor that stands in for the result of a refused node."""
        op = WeightOp.of("refused", tensor(shape, element_of(np.dtype(dtype))))
        self.block.add_op(op)
        return op.result
