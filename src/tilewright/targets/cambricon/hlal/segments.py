"""Tensors and filters in main memory: their segments, fields and re-layout (4.3.3.5, 4.4.2).

An array of up to four axes is cut into segments, so that a segment is one load. Every segment has
a slot of ``seg_bytes``; slots follow one another in the order of the layout, and so do the elements
within a segment. The last segment along an axis may be smaller: its elements are packed at the
start of its slot.

    axis of 6 with segments of 4:   |0 1 2 3|4 5 . .|    seg_n 2, seg_r 2
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.types import Array
from tilewright.memory import ceil_div

TENSOR_AXES = ("n", "h", "w", "c")
FILTER_AXES = ("co", "kh", "kw", "ci")
LETTERS = {"tensor": "NHWC", "filter": "OHWI"}


@dataclass(frozen=True)
class Axis:
    """One axis: its elements and those of a whole segment, both at least 1."""

    name: str
    size: int
    segment: int

    @property
    def count(self) -> int:
        """Segments, the smaller last one included."""
        return ceil_div(self.size, self.segment)

    @property
    def remainder(self) -> int:
        """Elements of the last segment where it is smaller than the others; otherwise 0."""
        return self.size % self.segment

    @property
    def last(self) -> int:
        """Elements of the last segment."""
        return self.remainder or self.segment


@dataclass(frozen=True)
class SegmentedArray:
    """A tensor or filter: 16-bit or 32-bit integers with a binary point, cut into segments."""

    name: str
    kind: str
    axes: tuple[Axis, ...]
    """Axes in the order of the declaration: n, h, w, c or co, kh, kw, ci."""
    order: tuple[int, ...]
    """Axes from the outermost in memory to the innermost."""
    element_bytes: int
    fraction: int
    """Fraction bits of the numbers, for the built-in blocks and for floats given to ``run``."""
    writable: bool
    address: int = 0
    """First byte, from the start of the data."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in the order of the declaration."""
        return tuple(axis.size for axis in self.axes)

    @property
    def layout(self) -> str:
        """The letters of the layout, outermost first."""
        return "".join(LETTERS[self.kind][axis] for axis in self.order)

    @property
    def slot_elements(self) -> int:
        """Elements of a whole segment."""
        return prod(axis.segment for axis in self.axes)

    @property
    def bytes(self) -> int:
        """Bytes in main memory, gaps after smaller segments included."""
        return prod(axis.count for axis in self.axes) * self.slot_elements * self.element_bytes

    @property
    def contiguous(self) -> bool:
        """True if the elements lie as in an unsegmented array of this layout."""
        axes = [self.axes[index] for index in self.order if self.axes[index].size > 1]
        # Axes one by one, then one in segments, then whole ones; what is missing of a smaller last
        # segment must not be followed by another slot.
        cut = next((place for place, axis in enumerate(axes) if axis.segment > 1), len(axes))
        whole = all(axis.count == 1 for axis in axes[cut + 1 :])
        return whole and not (cut and any(axis.remainder for axis in axes))

    def field(self, name: str) -> int | None:
        """The value of a field (``seg_n_c``, ``bytes``), or None where there is none of the name.

        ``natural`` tells whether the layout is NHWC or OHWI. ``seg_step_x`` is the bytes from a
        segment to the next along x, ``step_x`` those from an element to the next along x within a
        whole segment.
        """
        for index, axis in enumerate(self.axes):
            if name.endswith(f"_{axis.name}"):
                return self._of_axis(name.removesuffix(f"_{axis.name}"), index)
        return self._whole(name)

    def _whole(self, name: str) -> int | None:
        values = {
            "address": self.address,
            "elements": prod(self.shape),
            "bytes": self.bytes,
            "seg_elements": self.slot_elements,
            "seg_bytes": self.slot_elements * self.element_bytes,
            "element_bytes": self.element_bytes,
            "fraction": self.fraction,
            "contiguous": int(self.contiguous),
            "natural": int(self.order == (0, 1, 2, 3)),
        }
        return values.get(name)

    def _of_axis(self, name: str, index: int) -> int | None:
        axis = self.axes[index]
        inner = [self.axes[other] for other in self.order[self.order.index(index) + 1 :]]
        values = {
            "size": axis.size,
            "seg_size": axis.segment,
            "seg_n": axis.count,
            "seg_r": axis.remainder,
            "seg_last": axis.last,
            "seg_step": prod(a.count for a in inner) * self.slot_elements * self.element_bytes,
            "step": prod(a.segment for a in inner) * self.element_bytes,
        }
        return values.get(name)

    @property
    def dtype(self) -> np.dtype[np.signedinteger]:
        """Little-endian int16 or int32."""
        return np.dtype("<i2" if self.element_bytes == 2 else "<i4")

    def pack(self, values: Array) -> NDArray[np.uint8]:
        """The bytes of an array of ``shape`` as they lie in main memory; gaps are zero."""
        memory = np.zeros(self.bytes // self.element_bytes, self.dtype)
        memory[self._places()] = values
        return memory.view(np.uint8)

    def unpack(self, data: NDArray[np.uint8]) -> Array:
        """The array of ``shape`` whose bytes are given; the inverse of ``pack``."""
        return np.ascontiguousarray(data[: self.bytes]).view(self.dtype)[self._places()]

    def _places(self) -> NDArray[np.int64]:
        """The place of each element in main memory, in elements."""
        slot = within = np.zeros([1] * len(self.axes), np.int64)
        for index in self.order:
            axis = self.axes[index]
            along = np.arange(axis.size).reshape(
                [-1 if i == index else 1 for i in range(slot.ndim)]
            )
            number, rest = np.divmod(along, axis.segment)
            slot = slot * axis.count + number
            within = within * np.minimum(axis.segment, axis.size - number * axis.segment) + rest
        return slot * self.slot_elements + within
