"""The split over cores: which loop of a schedule the cores share, in equal runs of iterations.

Every element of a result is computed by the same instructions in the same order, whichever core
does it, so results do not depend on how many cores there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import ceil, lcm, prod

from tilewright.machine import Machine
from tilewright.planning.cached_cost import Nest
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.registers import REGISTERS
from tilewright.planning.schedule import Level, Schedule

LEAST_CYCLES = 30_000.0
"""Kernels that take less run on one core: meeting the others costs some thousands of cycles."""

BALANCED = 0.9
"""Busy part of the cores' time with which an outer loop is taken before an inner one."""

AGAIN = 0.85
"""Useful part of the time where every core makes all of what lies in scratch for itself."""


def share(kernel: Kernel, machine: Machine, schedule: Schedule, cycles: float) -> Schedule:
    """The schedule with the loop that ``machine.cores`` share; as it was if none is worth it.

    ``cycles`` is what one core is predicted to take. The outermost balanced loop is taken, so that
    each core works on one region. A schedule without loops over large tensors is given one.
    """
    if machine.cores == 1 or cycles < LEAST_CYCLES:
        return schedule
    allowed = _allowed(kernel)
    if not Nest.of(kernel, schedule).loops:
        schedule = _cut(kernel, machine, schedule, allowed)
    best, chosen = 1.0 / machine.cores, ""
    scratch = any(operand.role == "scratch" for operand in kernel.inputs)
    loops: dict[str, tuple[int, int]] = {}
    for dim, extent, step in Nest.of(kernel, schedule).loops:
        loops.setdefault(dim, (extent, step))
    for dim, (extent, step) in loops.items():
        if dim not in allowed:
            continue
        busy = extent / (max(parts(extent, step, machine.cores)) * machine.cores)
        if scratch and dim not in kernel.anchor.inputs[0].dims:
            busy *= AGAIN
        if busy > best:
            best, chosen = busy, dim
        if busy >= BALANCED:
            break
    return replace(schedule, shared=chosen)


def parts(extent: int, step: int, cores: int) -> list[int]:
    """Of a loop's extent, what each core computes: a run of whole tiles, the last one's edge less.

    The tile at the edge counts as one of the tiles, and is the last core's.
    """
    trips = ceil(extent / step)
    ends = [min(trips * core // cores * step, extent) for core in range(cores + 1)]
    return [end - begin for begin, end in pairwise(ends)]


def _allowed(kernel: Kernel) -> frozenset[str]:
    """Dims by which the result can be divided without anyone waiting for another's part.

    What a kernel makes in scratch of one tile of the input, every core makes in its own.
    """
    anchor = kernel.anchor
    found = frozenset(anchor.extents) - frozenset(anchor.reduction)
    for stage in kernel.stages:
        found &= stage.output.dims
    return found


def _cut(kernel: Kernel, machine: Machine, schedule: Schedule, allowed: frozenset[str]) -> Schedule:
    """A schedule without loops, with one over the outermost dim that gives every core a part."""
    granules = _granules(kernel)
    for dim, extent in kernel.anchor.extents.items():
        step = ceil(ceil(extent / machine.cores) / granules.get(dim, 1)) * granules.get(dim, 1)
        if dim in allowed and step < extent and ceil(extent / step) == machine.cores:
            level = Level(REGISTERS, ((dim, step),), (dim,))
            return replace(schedule, levels=(level,))
    return schedule


def _granules(kernel: Kernel) -> Mapping[str, int]:
    """Per dim, the extent of the blocks in which layouts keep it."""
    found: dict[str, int] = {}
    for stage in kernel.stages:
        for operand in (*stage.inputs, stage.output):
            layout = Layout.parse(operand.layout, len(operand.shape))
            for axis, access in enumerate(operand.access):
                block = prod(f.modulus or 1 for f in layout.factors if f.axis == axis)
                for dim in access.dims:
                    found[dim] = lcm(found.get(dim, 1), block)
    return found
