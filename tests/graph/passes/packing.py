"""The weights arena as bytes: every constant packed in the layout of its type, at its place."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.dialect import NetworkOp, WeightOp
from tilewright.graph.placement import WEIGHTS, arenas_of, placement_of
from tilewright.ir.passes import WeightStore
from tilewright.ir.types import Array, layout_of, shape_of
from tilewright.planning.layout import Layout


def packed_weight(op: WeightOp, store: WeightStore) -> Array:
    """A constant as it lies in memory: its physical array, padding zero."""
    array = store.get(op.symbol.data)
    return Layout.parse(layout_of(op.result), len(shape_of(op.result))).pack(array)


def pack_weights(network: NetworkOp, store: WeightStore) -> NDArray[np.uint8]:
    """The weights arena of a network whose memory is planned; gaps are zero."""
    arena = np.zeros(arenas_of(network).get(WEIGHTS, 0), np.uint8)
    for op in network.block.ops:
        if isinstance(op, WeightOp):
            packed = packed_weight(op, store)
            count = prod(packed.shape) * packed.dtype.itemsize
            start = placement_of(op.result).offset
            arena[start : start + count] = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)
    return arena
