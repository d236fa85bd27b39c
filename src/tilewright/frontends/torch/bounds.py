"""Bounds of free dims: those that torch.export found, or was given as ``Dim(name, min, max)``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.frontends.torch.library import torch_library
from tilewright.shapes import Bounds, Signature
from tilewright.shapes.forms import LARGEST_SIZE


def with_bounds(signature: Signature, program: Any) -> Signature:
    """A signature with the bounds under which an exported program holds, dim by dim.

    The signature's inputs are the program's tensor inputs, in their order.
    """
    stored = program.graph_signature
    tensors = [
        node.meta["val"]
        for node in program.graph.find_nodes(op="placeholder")
        if node.name in stored.user_inputs and isinstance(node.meta["val"], torch_library().Tensor)
    ]
    bounded = [
        replace(item, bounds=_bounds(item.dims or (), tensor.shape, program.range_constraints))
        for item, tensor in zip(signature.inputs, tensors, strict=True)
    ]
    return replace(signature, inputs=tuple(bounded))


def _bounds(dims: tuple[int | str, ...], sizes: Any, constraints: Any) -> dict[str, Bounds]:
    bounds: dict[str, Bounds] = {}
    for dim, size in zip(dims, sizes, strict=True):
        limits = None if isinstance(size, int) else constraints.get(size.node.expr)
        if isinstance(dim, str) and limits is not None:
            low, high = max(limits.lower, 1), min(limits.upper, LARGEST_SIZE)
            bounds[dim] = Bounds(int(low), int(high))
    return bounds
