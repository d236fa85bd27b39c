"""The split over cores: which loop of a schedule the cores share, in equal runs of iterations.

Every element of a result is computed by the same instructions in the same order, whichever core
does it, so results do not depend on how many cores there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, lcm, prod

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.planners.cores import shareable
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.planning.cost import Nest, box_bytes, cache_levels
from tilewright.targets.cpu.planning.registers import REGISTERS

LEAST_CYCLES = 30_000.0
"""Kernels that take less run on one core: meeting the others costs some thousands of cycles."""

BETTER = 0.95
"""Part of an outer loop's time that an inner one must stay below to be taken."""

SCATTERED, STREAMED = 2.0, 6.0
"""Bytes a cycle that a core gets of what another has just written, from that core's cache: of rows
of many channels, and of whole channels, which prefetching foresees.

Measured on Xeons (Sapphire Rapids): of an image, what lies in the other core's cache adds its
bytes at this rate to a kernel's time."""

OVERRUN = 2048.0
"""Bytes that prefetching takes from another core where its run of rows begins."""

NEAR, MOST_NEAR, WORTH = 1.03, 64, 0.93
"""The most that another schedule may take on one core, how many are looked at, and the most that it
may take on several: parts of the time of the best on one core."""

AGAIN = 0.85
"""Useful part of the time where every core makes all of what lies in scratch for itself."""


def divisible(
    kernel: Kernel, machine: Machine, priced: Sequence[tuple[float, float, Schedule]]
) -> int:
    """Which of the schedules, best first with their cycles on one core, several cores share best.

    One that takes little longer on one core, and is much better divided; else the first.
    """
    if machine.cores == 1 or priced[0][0] < LEAST_CYCLES:
        return 0
    least = priced[0][0]
    near = [entry for entry in priced[:MOST_NEAR] if entry[0] <= NEAR * least]
    times = [share(kernel, machine, schedule, cycles)[0] for cycles, _, schedule in near]
    best = min(range(len(near)), key=times.__getitem__)
    return best if times[best] < WORTH * times[0] else 0


def share(
    kernel: Kernel, machine: Machine, schedule: Schedule, cycles: float
) -> tuple[float, Schedule]:
    """Cycles until the last of ``machine.cores`` is done, and the schedule with the loop that they
    share; as it was if none is worth it.

    ``cycles`` is what one core is predicted to take. The loop is taken with which the slowest core
    is done first, with what cores get from each other. A schedule without loops over large tensors
    is given one.
    """
    if machine.cores == 1 or cycles < LEAST_CYCLES:
        return cycles, schedule
    allowed = shareable(kernel)
    if not Nest.of(kernel, schedule).loops:
        schedule = _cut(kernel, machine, schedule, allowed)
    scratch = any(operand.role == "scratch" for operand in kernel.inputs)
    loops: dict[str, tuple[int, int]] = {}
    for dim, extent, step in Nest.of(kernel, schedule).loops:
        loops.setdefault(dim, (extent, step))
    best, chosen = cycles + exchanged(kernel, machine, ""), ""
    for dim, (extent, step) in loops.items():
        if dim not in allowed:
            continue
        took = cycles * max(parts(extent, step, machine.cores)) / extent
        if scratch and dim not in kernel.anchor.inputs[0].dims:
            took /= AGAIN
        took += exchanged(kernel, machine, dim)
        if took < BETTER * best:
            best, chosen = took, dim
    return best, replace(schedule, shared=chosen)


def exchanged(kernel: Kernel, machine: Machine, dim: str) -> float:
    """Cycles to get what other cores have, if cores divide ``dim``, and what they need twice.

    Images are taken to lie where their rows (the last axis but one) are divided: so what is read
    by rows is at hand, and what is written by others must be got by the next kernel.
    """
    caches = cache_levels(machine)
    near = machine.cores * max((size for size, _ in caches[:-1]), default=0)
    away = 1.0 - 1.0 / machine.cores
    cycles = 0.0
    for operand in kernel.operands:
        size = float(box_bytes(operand, kernel.anchor.extents))
        if operand.role == "weight":
            cycles += 0.0 if dim in operand.dims or not dim else away * size / caches[-1][1]
        elif operand.role in ("bias", "scratch") or size > near:
            continue
        elif len(operand.access) > 1 and dim in operand.access[-2].dims:
            cycles += min(_runs(operand) * OVERRUN, size) * away / SCATTERED
        elif dim in operand.dims:
            cycles += size * away / machine.cores / STREAMED
        else:
            cycles += size * away / SCATTERED
    return cycles


def _runs(operand: Operand) -> int:
    """Return the number of planes of rows in an image: one for every block of channels."""
    runs = 1
    layout = Layout.parse(operand.layout, len(operand.shape))
    for axis, extent in enumerate(operand.shape[:-2]):
        block = prod(f.modulus or 1 for f in layout.factors if f.axis == axis)
        runs *= ceil(extent / block)
    return runs


def parts(extent: int, step: int, cores: int) -> list[int]:
    """Return each core's part of a loop's extent: whole tiles, less the edge of the last one.

    The tile at the edge counts as one of the tiles, and is the last core's.
    """
    trips = ceil(extent / step)
    ends = [min(trips * core // cores * step, extent) for core in range(cores + 1)]
    return [end - begin for begin, end in pairwise(ends)]


def _cut(kernel: Kernel, machine: Machine, schedule: Schedule, allowed: frozenset[str]) -> Schedule:
    """A schedule without loops, with one that gives every core a part; over no dim that must be
    whole."""
    granules = _granules(kernel)
    whole = machine.primitive(schedule.primitive).whole
    parts: dict[str, int] = {}
    for dim, extent in kernel.anchor.extents.items():
        step = ceil(ceil(extent / machine.cores) / granules.get(dim, 1)) * granules.get(dim, 1)
        if dim not in allowed or dim in whole:
            continue
        if step < extent and ceil(extent / step) == machine.cores:
            parts[dim] = step
    if parts:
        dim = min(parts, key=lambda dim: exchanged(kernel, machine, dim))
        level = Level(REGISTERS, ((dim, parts[dim]),), (dim,))
        return replace(schedule, levels=(level,))
    return schedule


def _granules(kernel: Kernel) -> Mapping[str, int]:
    """Per dim, the extent of the blocks in which layouts keep it."""
    granules: dict[str, int] = {}
    for stage in kernel.stages:
        for operand in (*stage.inputs, stage.output):
            layout = Layout.parse(operand.layout, len(operand.shape))
            for axis, access in enumerate(operand.access):
                block = prod(f.modulus or 1 for f in layout.factors if f.axis == axis)
                for dim in access.dims:
                    granules[dim] = lcm(granules.get(dim, 1), block)
    return granules
