"""Reading and writing values in the bytes of arenas, where their placements say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.graph.placement import Placement, placement_of
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, dtype_of, layout_of, shape_of
from tilewright.planning.layout import Layout

Arenas = Mapping[str, NDArray[np.uint8]]
"""Bytes of every allocation of a package: ``activations`` and ``weights``."""


@dataclass(frozen=True)
class Box:
    """The address, extents and strides of a value in main memory."""

    arena: str
    offset: int
    """The offset of the value in its arena, in bytes."""
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    """The strides of the value, in bytes."""
    width: int
    """Bytes of an element."""

    @classmethod
    def of(cls, value: SSAValue) -> Box:
        """The box of a value of the network."""
        place, shape = placement_of(value), shape_of(value)
        width = dtype_of(value).itemsize
        extents = Layout.parse(layout_of(value), len(shape)).physical_shape(shape)
        strides = tuple(step * width for step in place.strides)
        return cls(place.arena, place.offset, extents, strides, width)

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one."""
        pairs = zip(self.extents, self.strides, strict=True)
        return sum((extent - 1) * step for extent, step in pairs) + self.width

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return prod(self.extents) * self.width

    @property
    def dense(self) -> bool:
        """True if elements follow each other without a gap, in order."""
        step = self.width
        for extent, stride in zip(reversed(self.extents), reversed(self.strides), strict=True):
            if extent > 1 and stride != step:
                return False
            step *= extent
        return True

    def same(self, other: Box) -> bool:
        """Return True if both are the same bytes in the same order."""
        ends = [(box.arena, box.offset, box.bytes) for box in (self, other)]
        return ends[0] == ends[1] and self.dense and other.dense


def box(arenas: Arenas, place: Placement, physical: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The physical array at a placement, sharing the arena's bytes.

    Refuses (``package-invalid``) a placement that leaves its arena.
    """
    data = arenas.get(place.arena)
    if data is None:
        raise refuse("package-invalid", f"a value lies in the unknown arena {place.arena}")
    strides = [stride * dtype.itemsize for stride in place.strides]
    try:
        return np.ndarray(physical, dtype, data.data, place.offset, strides)
    except (ValueError, TypeError) as error:
        raise refuse("package-invalid", f"a value lies outside {place.arena}: {error}") from error


def strided(value: SSAValue, arenas: Arenas) -> tuple[Array, Layout]:
    """The physical array of a value, sharing the arena's bytes, and its layout."""
    shape = shape_of(value)
    layout = Layout.parse(layout_of(value), len(shape))
    dtype = dtype_of(value)
    return box(arenas, placement_of(value), layout.physical_shape(shape), dtype), layout


def read_value(value: SSAValue, arenas: Arenas) -> Array:
    """The logical array of a value."""
    view, layout = strided(value, arenas)
    return layout.unpack(view, shape_of(value))


def write_value(value: SSAValue, arenas: Arenas, array: Array) -> None:
    """Store the logical array of a value."""
    view, layout = strided(value, arenas)
    view[...] = layout.pack(array)
