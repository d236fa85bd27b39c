"""Tensors and filters in main memory: their segments, fields and re-layout (4.3.3.5, 4.4.2).

An array of up to four axes is cut into segments, so that a segment is one load. Every segment has
a slot of ``seg_bytes``; slots follow one another in the order of the layout, and so do the elements
within a segment. The last segment along an axis may be smaller: its elements are packed at the
start of its slot.

    axis of 6 with segments of 4:   |0 1 2 3|4 5 . .|    seg_n 2, seg_r 2
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import product
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
    """In the order of the declaration: n, h, w, c or co, kh, kw, ci."""
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
        strides: list[tuple[int, int]] = []
        plain = 1
        for index in reversed(self.order):
            axis = self.axes[index]
            strides.append((plain, index))
            plain *= axis.size
        for stride, index in strides:
            axis, width = self.axes[index], stride * self.element_bytes
            within, between = self._of_axis("step", index), self._of_axis("seg_step", index)
            if axis.segment > 1 and axis.size > 1 and within != width:
                return False
            if axis.count > 1 and between != width * axis.segment:
                return False
        outer = False
        for index in self.order:  # a smaller last segment must not be followed by another slot,
            if self.axes[index].remainder and outer:
                return False
            outer = outer or self.axes[index].size > 1
        return True

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
        count = prod(axis.count for axis in self.axes)
        slots = np.zeros((count, self.slot_elements), self.dtype)
        for rows, part, order, _ in self._classes():
            block = values[part].reshape(order.split).transpose(order.out)
            slots[rows, : order.elements] = block.reshape(len(rows), order.elements)
        return slots.reshape(-1).view(np.uint8)

    def unpack(self, data: NDArray[np.uint8]) -> Array:
        """The array of ``shape`` whose bytes are given; the inverse of ``pack``."""
        slots = np.ascontiguousarray(data[: self.bytes]).view(self.dtype)
        slots = slots.reshape(-1, self.slot_elements)
        values = np.zeros(self.shape, self.dtype)
        for rows, part, order, shape in self._classes():
            block = slots[rows, : order.elements].reshape(order.moved)
            values[part] = block.transpose(np.argsort(order.out)).reshape(shape)
        return values

    def _classes(
        self,
    ) -> Generator[tuple[NDArray[np.int64], tuple[slice, ...], _Order, tuple[int, ...]]]:
        """Segments of the same sizes together: slots, where the elements are, how they lie."""
        counts = [self.axes[index].count for index in self.order]
        numbers = np.arange(prod(counts), dtype=np.int64).reshape(counts)
        kinds = [
            [(0, axis.size // axis.segment, axis.segment)] * bool(axis.size // axis.segment)
            + [(axis.count - 1, 1, axis.remainder)] * bool(axis.remainder)
            for axis in self.axes
        ]
        for kind in product(*kinds):
            part = tuple(
                slice(first * axis.segment, first * axis.segment + count * size)
                for axis, (first, count, size) in zip(self.axes, kind, strict=True)
            )
            picked = tuple(slice(kind[i][0], kind[i][0] + kind[i][1]) for i in self.order)
            split = tuple(number for _, count, size in kind for number in (count, size))
            out = tuple(2 * i for i in self.order) + tuple(2 * i + 1 for i in self.order)
            moved = tuple(split[place] for place in out)
            elements = prod(size for _, _, size in kind)
            shape = tuple(count * size for _, count, size in kind)
            yield numbers[picked].reshape(-1), part, _Order(split, out, moved, elements), shape


@dataclass(frozen=True)
class _Order:
    split: tuple[int, ...]
    """Count and size of each axis in turn."""
    out: tuple[int, ...]
    """The transposition: counts in the layout's order, then sizes."""
    moved: tuple[int, ...]
    elements: int
