"""Load balance of the cores: how far their parts of the result differ from the priced one.

A plan's price is that of the core with the most parts, each of them the largest, at its equal share
of main memory. Where parts do not come out even, others have less to do, and leave it their share.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.own import shared_cache
from tilewright.planning.planners.cores import part_of
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.footprint import axis_lengths, tile_positions

EVEN = 0.01
"""The share of elements or bytes that the mean of all cores may lack to count as balanced."""


def imbalance(kernel: Kernel, machine: Machine, schedule: Schedule) -> str:
    """Return the reasons for which cores differ, as a list in one text; "" where they are balanced.

    Nothing is said of cores behind a cache that they share.
    """
    if machine.cores == 1 or shared_cache(machine) is not None:
        return ""
    extents = kernel.anchor.extents
    level = schedule.levels[0]
    grid = {dim: level.size(dim, extents[dim]) for dim in schedule.shared.split()}
    kernel = kernel.alone  # Of a chain, the kernel whose result is cut.
    parts = prod(ceil(extents[dim] / size) for dim, size in grid.items())
    # Core i takes a run of the parts, so some may be left with none.
    busy = ceil(parts / ceil(parts / machine.cores))
    reasons: list[str] = []
    if busy < machine.cores:
        reasons.append(f"{busy} of {machine.cores} cores compute")
    runs = busy * ceil(parts / machine.cores)
    if parts < runs:
        reasons.append(f"{parts} parts for {runs}")
    filled = prod(extents[d] / (ceil(extents[d] / size) * size) for d, size in grid.items())
    if filled < 1 - EVEN:
        reasons.append(f"the mean part has {1 - filled:.0%} fewer elements than the largest")
    moved = moved_share(kernel, grid) / filled
    if moved < 1 - EVEN:
        reasons.append(f"parts at the border move less: the mean {1 - moved:.0%}")
    for operand in kernel.inputs:
        axis = dict(schedule.exchanged).get(operand.name)
        if axis is not None and axis.endswith("in turns"):
            reasons.append(f"{operand.name} is loaded in turns")
    return ", ".join(reasons)


def moved_share(kernel: Kernel, grid: Mapping[str, int]) -> float:
    """Bytes of a part's operands in the mean, over those of the part that is priced."""
    extents, sizes = kernel.anchor.extents, {**kernel.anchor.extents, **grid}
    priced = mean = 0.0
    for whole, part in zip(kernel.operands, part_of(kernel, grid).operands, strict=True):
        most = average = float(whole.element_bytes)
        for axis, cut, extent in zip(whole.access, part.access, whole.shape, strict=True):
            parts = {dim: tile_positions(extents[dim], sizes[dim]) for dim in axis.dims}
            first = {dim: tile_positions(sizes[dim], sizes[dim]) for dim in axis.dims}
            average *= float(axis_lengths(axis, extent, parts).mean())
            most *= int(axis_lengths(cut, extent, first).max())
        priced, mean = priced + most, mean + average
    return mean / priced if priced else 1.0
