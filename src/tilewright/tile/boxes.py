"""Boxes: what a window spans, for one iteration or for every execution at once.

A box is a start and a size along each axis of a tensor. It may reach beyond the tensor: what lies
outside is padding, before the first index or after the last. The part inside is the clamped box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.types import Array
from tilewright.planning.domain import Affine, Interval
from tilewright.tile.iteration import Rows


@dataclass(frozen=True)
class Boxes:
    """The boxes of a window over every execution: arrays of shape (axes, executions).

    ``clamped_start`` and ``clamped_size`` give the part inside the tensor (a box that lies wholly
    in the padding has clamped size 0); ``pad_before + clamped_size + pad_after == size``.
    """

    start: Array
    size: Array
    clamped_start: Array
    clamped_size: Array
    pad_before: Array
    pad_after: Array


def box_columns(window: Sequence[Affine], shape: Sequence[int], rows: Rows) -> Boxes:
    """The boxes of a window on a tensor of ``shape``, in each row."""
    start = np.empty((len(shape), rows.count), np.int64)
    size = np.empty_like(start)
    for axis, expression in enumerate(window):
        start[axis], size[axis] = rows.interval(expression)
    limit = np.asarray(shape, np.int64).reshape(-1, 1)
    end = start + size
    low = np.clip(start, 0, limit)
    high = np.clip(end, low, limit)
    # A box after the tensor's end is all padding after.
    before = np.clip(low - start, 0, size)
    inside = high - low
    return Boxes(start, size, low, inside, before, size - before - inside)


@dataclass(frozen=True)
class Box:
    """One box: start and size along each axis, and the tensor's shape."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(
        cls, window: Sequence[Affine], shape: Sequence[int], dims: Mapping[str, Interval]
    ) -> Box:
        """The box of a window for dims in their intervals."""
        intervals = [axis.interval(dims) for axis in window]
        return cls(
            tuple(start for start, _ in intervals),
            tuple(size for _, size in intervals),
            tuple(shape),
        )

    @property
    def clamped(self) -> tuple[Interval, ...]:
        """Start and size along each axis of the part inside the tensor."""
        result: list[Interval] = []
        for start, size, limit in zip(self.start, self.size, self.shape, strict=True):
            low = min(max(start, 0), limit)
            result.append((low, max(min(start + size, limit) - low, 0)))
        return tuple(result)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The part inside the tensor, as an index of an array of the tensor."""
        return tuple(slice(start, start + size) for start, size in self.clamped)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after along each axis."""
        result: list[tuple[int, int]] = []
        for start, size, (low, inside) in zip(self.start, self.size, self.clamped, strict=True):
            before = min(max(low - start, 0), size)
            result.append((before, size - before - inside))
        return tuple(result)

    @property
    def empty(self) -> bool:
        """True if no part of the box lies inside the tensor."""
        return any(size == 0 for _, size in self.clamped)

    def contains(self, other: Box) -> bool:
        """Return True if the part of ``other`` inside the tensor lies in this box, too."""
        return other.empty or all(
            low <= start and start + size <= low + extent
            for (low, extent), (start, size) in zip(self.clamped, other.clamped, strict=True)
        )

    def __str__(self) -> str:
        axes = (
            f"{start}:{start + size}" for start, size in zip(self.start, self.size, strict=True)
        )
        return "[" + ", ".join(axes) + "]"
