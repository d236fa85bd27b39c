"""Shapes whose dims may be free: how they are written, settled for a compile, met by a run."""

from tilewright.shapes.forms import Bounds, Shapes, Size, parse_shape, parse_size
from tilewright.shapes.run import sizes_of
from tilewright.shapes.settle import Settled, Signature, TensorDims, settle

__all__ = [
    "Bounds",
    "Settled",
    "Shapes",
    "Signature",
    "Size",
    "TensorDims",
    "parse_shape",
    "parse_size",
    "settle",
    "sizes_of",
]
