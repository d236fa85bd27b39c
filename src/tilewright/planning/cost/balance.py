"""Load balance of the cores: how far their parts of the result differ from the priced one.

A plan's price is that of the core with the most parts, each of them the largest, at its equal share
of main memory. Where parts do not come out even, others have less to do, and leave it their share.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import ceil, prod

from tilewright.machine import Machine
from tilewright.planning.domain import Affine, Kernel
from tilewright.planning.own import shared_cache
from tilewright.planning.planners.cores import part_of
from tilewright.planning.schedule import Schedule

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
    priced = mean = 0.0
    for whole, part in zip(kernel.operands, part_of(kernel, grid).operands, strict=True):
        most = average = float(whole.element_bytes)
        for axis, own, extent in zip(whole.access, part.access, whole.shape, strict=True):
            sizes = {d: grid.get(d, kernel.anchor.extents[d]) for d in axis.dims}
            most *= _length(own, {d: (0, size) for d, size in sizes.items()}, extent)
            average *= _mean(axis, sizes, kernel.anchor.extents, extent)
        priced, mean = priced + most, mean + average
    return mean / priced if priced else 1.0


def _mean(axis: Affine, sizes: Mapping[str, int], extents: Mapping[str, int], extent: int) -> float:
    """Return the length of an axis that parts take, in the mean over all parts."""
    spans = [
        [
            (d, (start, min(sizes[d], extents[d] - start)))
            for start in range(0, extents[d], sizes[d])
        ]
        for d in axis.dims
    ]
    lengths = [_length(axis, dict(part), extent) for part in product(*spans)]
    return sum(lengths) / len(lengths)


def _length(axis: Affine, dims: Mapping[str, tuple[int, int]], extent: int) -> int:
    """Return the number of an axis' indices within the tensor that a part takes."""
    start, size = axis.interval(dims)
    return max(min(start + size, extent) - max(start, 0), 0)
