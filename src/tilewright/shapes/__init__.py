"""Shapes whose dims may be free: how they are written, settled for a compile, met by a run."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.shapes.forms import Bounds, Shapes, Size, parse_shape, parse_size
    from tilewright.shapes.run import sizes_of
    from tilewright.shapes.settlement import Settled, Signature, TensorDims, settle

_HOMES = {
    "Bounds": "forms",
    "Settled": "settlement",
    "Shapes": "forms",
    "Signature": "settlement",
    "Size": "forms",
    "TensorDims": "settlement",
    "parse_shape": "forms",
    "parse_size": "forms",
    "settle": "settlement",
    "sizes_of": "run",
}

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


def __getattr__(name: str) -> Any:
    """Import the names of the room on first use: opening a package takes bounds alone."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright.shapes' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tilewright.shapes.{_HOMES[name]}"), name)
