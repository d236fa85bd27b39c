"""Boxes: what a window spans in every execution of an operation at once.

A box is a start and a size along each axis of a tensor. It may reach beyond the tensor: what lies
outside is padding, before the first index or after the last. The part inside is the clamped box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.types import Array
from tilewright.planning.domain import Affine
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
