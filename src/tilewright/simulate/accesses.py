"""Bytes that instructions touch: strided boxes as columns, what moving them costs, and records of
them for the race check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.machine.model import Move
from tilewright.simulate.commands import ACCESS, AccessArray, transfer_bytes

AXES = 3
"""Strided axes of one access record."""

Column = NDArray[np.int64]
"""One value per instruction."""


@dataclass(frozen=True)
class Touch:
    """Boxes that a column of instructions touches in one memory, one box per instruction.

    Touched are, for each instruction, ``element`` bytes at ``address`` plus every combination of
    ``strides[a] * [0, sizes[a])``. An instruction with a size of 0 touches nothing.
    """

    memory: str
    write: bool
    address: Column
    sizes: tuple[Column, ...]
    strides: tuple[Column, ...]
    element: Column

    @property
    def used(self) -> NDArray[np.bool_]:
        """Mask of the instructions that touch at least one byte."""
        used = np.ones(self.address.shape, np.bool_)
        for size in self.sizes:
            used &= size > 0
        return used

    @property
    def end(self) -> Column:
        """First byte after the box (meaningless where nothing is touched)."""
        end = self.address + self.element
        for size, stride in zip(self.sizes, self.strides, strict=True):
            end = end + np.maximum(size - 1, 0) * stride
        return end


def coalesce(touch: Touch) -> tuple[Column, NDArray[np.int64], NDArray[np.int64]]:
    """The same boxes as runs of contiguous bytes under as few axes as possible.

    Returns the run in bytes, and the counts and strides of the axes, of shape (instructions,
    axes), ascending by stride; axes that are not needed have count 1 and come last.
    """
    count = touch.address.size
    axes = max(1, len(touch.sizes))
    sizes = np.ones((count, axes), np.int64)
    strides = np.full((count, axes), np.iinfo(np.int64).max, np.int64)
    for axis, (size, stride) in enumerate(zip(touch.sizes, touch.strides, strict=True)):
        sizes[:, axis] = size
        strides[:, axis] = np.where(size > 1, stride, np.iinfo(np.int64).max)
    order = np.argsort(strides, axis=1, kind="stable")
    sizes = np.take_along_axis(sizes, order, 1)
    strides = np.take_along_axis(strides, order, 1)
    run = touch.element.astype(np.int64).copy()
    counts = np.ones((count, axes), np.int64)
    steps = np.zeros((count, axes), np.int64)
    top = np.full(count, -1)
    rows = np.arange(count)
    for axis in range(axes):
        size, stride = sizes[:, axis], strides[:, axis]
        real = size > 1
        # A stride below the run repeats bytes (a broadcast): the longest reach covers it.
        into_run = real & (top < 0) & (stride <= run)
        run = np.where(into_run, np.maximum(run, (size - 1) * stride + run), run)
        current = np.maximum(top, 0)
        reach = counts[rows, current] * steps[rows, current]
        into_top = real & ~into_run & (top >= 0) & (stride == reach)
        counts[rows[into_top], current[into_top]] *= size[into_top]
        fresh = real & ~into_run & ~into_top
        top = top + fresh
        counts[rows[fresh], top[fresh]] = size[fresh]
        steps[rows[fresh], top[fresh]] = stride[fresh]
    return run, counts, steps


def bandwidth_bytes(touch: Touch, move: Move) -> Column:
    """The bytes of bandwidth that a move takes for each box: both ends of every contiguous run are
    rounded outwards to the move's transactions (``transfer_bytes``)."""
    run, counts, strides = coalesce(touch)
    if move.transaction == 1:
        cost = np.asarray(transfer_bytes(move, run, np.prod(counts, axis=1)))
    else:
        cost = _by_transactions(move, touch.address, run, counts, strides)
    return np.where(touch.used, cost, 0)


def _by_transactions(
    move: Move,
    address: Column,
    run: Column,
    counts: NDArray[np.int64],
    strides: NDArray[np.int64],
) -> Column:
    """Runs whose addresses matter: each distinct shape is counted once, run by run."""
    key = np.column_stack([address % move.transaction, run, counts, strides])
    rows, index = np.unique(key, axis=0, return_inverse=True)
    axes = counts.shape[1]
    total = np.zeros(len(rows), np.int64)
    for number, row in enumerate(rows.tolist()):
        start, length = row[0], row[1]
        shape, steps = row[2 : 2 + axes], row[2 + axes :]
        if prod(shape) > 1 << 24:
            raise refuse("simulate-size", f"a transfer of {prod(shape)} blocks")
        places = np.array([start], np.int64)
        for size, step in zip(shape, steps, strict=True):
            places = (places[:, None] + np.arange(size) * step).ravel() % move.transaction
        starts, times = np.unique(places, return_counts=True)
        total[number] = int(
            np.sum(transfer_bytes(move, np.full_like(starts, length), times, address=starts))
        )
    return total[index.ravel()]


def records(touches: Sequence[Touch], commands: Column, memories: Sequence[str]) -> AccessArray:
    """Access records of boxes; ``commands`` has the command's index of each instruction."""
    parts: list[AccessArray] = []
    for touch in touches:
        used = np.flatnonzero(touch.used)
        if not used.size:
            continue
        run, counts, strides = coalesce(touch)
        run, counts, strides = run[used], counts[used], strides[used]
        address, command = touch.address[used], commands[used]
        # What has more axes than a record is spelled out along the outer ones.
        for axis in range(counts.shape[1] - 1, AXES - 1, -1):
            times = counts[:, axis]
            if not np.any(times > 1):
                continue
            source = np.repeat(np.arange(times.size), times)
            starts = np.cumsum(times) - times
            step = np.arange(source.size) - starts[source]
            address = address[source] + step * strides[source, axis]
            run, counts, strides = run[source], counts[source].copy(), strides[source]
            command = command[source]
            counts[:, axis] = 1
        table = np.zeros(run.size, ACCESS)
        table["command"] = command
        table["memory"] = memories.index(touch.memory)
        table["write"] = touch.write
        table["address"] = address
        table["run"] = run
        table["count"] = 1
        kept = min(AXES, counts.shape[1])
        table["count"][:, :kept] = counts[:, :kept]
        table["stride"][:, :kept] = strides[:, :kept]
        parts.append(table)
    return np.concatenate(parts) if parts else np.zeros(0, ACCESS)
