"""Evaluate operations whose operands are all known, with the meaning that the graph gives them.

The rule builds a network of its own, which is interpreted at once: index arithmetic, loop counters
and weights that a model prepares are constants before anything looks at them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tilewright.frontends.builder import NetworkBuilder
from tilewright.frontends.stablehlo.limits import MAX_FOLDED_ELEMENTS
from tilewright.frontends.stablehlo.values import View
from tilewright.graph.dialect import GraphOperation, WeightOp
from tilewright.graph.weights import Weights
from tilewright.ir import Block, SSAValue
from tilewright.ir.types import Array, dtype_of, shape_of


class Build(Protocol):
    """Runs a rule in a network."""

    def __call__(self, network: NetworkBuilder) -> Sequence[View]:
        """The results; raises TilewrightError."""
        ...


def folded(build: Build) -> Sequence[View] | None:
    """The results as arrays; None if evaluating them would make a tensor that is too large."""
    block, weights = Block(), Weights()
    results = build(NetworkBuilder(block, weights))
    for op in block.ops:
        if any(math.prod(shape_of(value)) > MAX_FOLDED_ELEMENTS for value in op.results):
            return None
    arrays: dict[SSAValue, Array] = {}
    with np.errstate(all="ignore"):
        for op in block.ops:
            if isinstance(op, WeightOp):
                arrays[op.result] = weights.get(op.symbol.data)
            elif isinstance(op, GraphOperation):
                result = op.evaluate(*(arrays[value] for value in op.inputs))
                dtype = dtype_of(op.result)
                arrays[op.result] = np.asarray(result, dtype)
    return [
        View(arrays[view.core], view.axes, view.shape) if isinstance(view.core, SSAValue) else view
        for view in results
    ]
