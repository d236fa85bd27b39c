"""weights.bin: every constant of a network, packed in the layout of its type."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import NetworkOp, WeightOp
from tilewright.graph.placement import WEIGHTS, placement_of
from tilewright.ir.types import element_dtype, layout_of, tensor_type
from tilewright.planning.layout import Layout
from tilewright.targets.base import Compilation


def write_weights(network: NetworkOp, compilation: Compilation, path: Path) -> None:
    """Write the arena of weights: every constant packed in the layout of its type.

    One after the other, so that no more than the largest is in memory; gaps are zero.
    """
    size = compilation.arenas.get(WEIGHTS, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        for op in network.body.walk():
            if not isinstance(op, WeightOp) or op.placement is None:
                continue
            place = placement_of(op.result)
            kind = tensor_type(op.result)
            array = compilation.weights.get(op.symbol.data)
            layout = Layout.parse(layout_of(op.result), len(kind.get_shape()))
            packed = layout.pack(np.asarray(array, element_dtype(kind.element_type)))
            item = packed.dtype.itemsize
            if place.strides != layout.strides(kind.get_shape()):
                raise refuse("cpu-placement", "weights must lie dense", op.symbol.data)
            end = place.offset + packed.size * item
            if place.offset % item or end > size:
                raise refuse("cpu-placement", "a weight lies outside its arena", op.symbol.data)
            file.seek(place.offset)
            file.write(packed.reshape(-1).view(np.uint8).data)
