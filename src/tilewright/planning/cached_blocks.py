"""Schedules of primitives that work in scratch memory: blocks of tiles, and channels within them.

A block's inputs are transformed once, into scratch, when the loop over output channels starts; so
that loop is the innermost. The larger a block, the less often the weights are read again; the
smaller, the nearer its scratch stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.planning.cached_cost import USABLE, Nest, box_bytes, cache_levels
from tilewright.planning.domain import Kernel
from tilewright.planning.registers import REGISTERS, Registers, registers_of
from tilewright.planning.schedule import Level, Schedule

_VECTORS = (1, 2, 3, 4, 6)

CALL_CYCLES = 20.0
"""To set up one register tile."""


def register_tiles(points: int, most: int) -> list[int]:
    """The fewest register tiles of at most ``most`` points, as even as can be, largest first."""
    parts = ceil(points / most)
    small, more = divmod(points, parts)
    return [small + 1] * more + [small] * (parts - more)


def scratch_elements(primitive: Primitive, schedule: Schedule, kernel: Kernel) -> int:
    """Elements of scratch that a schedule's instances need."""
    sizes = dict(kernel.anchor.extents)
    for level in schedule.levels:
        sizes = {dim: level.size(dim, extent) for dim, extent in sizes.items()}
    found: Any = parse_expression(primitive.scratch).evaluate(sizes)
    return int(found)


def block_schedules(
    kernel: Kernel, primitive: Primitive, registers: Registers
) -> Iterator[Schedule]:
    """Blocks of whole rows of tiles, or of parts of one row, that fit the kernel's scratch."""
    extents = kernel.anchor.extents
    room = next(o.shape[0] for o in kernel.inputs if o.role == "scratch")
    rows, columns = extents["th"], extents["tw"]
    blocks = [(height, columns) for height in _shares(rows)]
    blocks += [(1, width) for width in _shares(columns) if width < columns]
    channels = ceil(extents["co"] / registers.lanes)
    for vectors in _VECTORS:
        if vectors > channels or not registers.fits(1, vectors):
            continue
        widest = max(p for p in range(1, registers.count + 1) if registers.fits(p, vectors))
        for height, width in blocks:
            tile = {"n": 1, "th": height, "tw": width}
            tile["co"] = min(vectors * registers.lanes, extents["co"])
            sizes = tuple(sorted(tile.items()))
            level = Level(REGISTERS, sizes, ("n", "th", "tw", "co"))
            found = Schedule(primitive.name, (level,), options=(("points", widest),))
            if scratch_elements(primitive, found, kernel) <= room:
                yield found


def _shares(extent: int) -> list[int]:
    """The sizes of even parts of an extent."""
    return sorted({ceil(extent / parts) for parts in range(1, extent + 1)})


def block_cycles(
    kernel: Kernel, schedule: Schedule, primitive: Primitive, machine: Machine
) -> float:
    """The primitive's cycles, what register tiles lose against full speed, and phases' traffic.

    Transforms hardly compute, so what they read and write from beyond the second cache does not
    hide behind the products, as the weights do.
    """
    extents, registers = kernel.anchor.extents, registers_of(machine, primitive)
    cycles: Any = parse_expression(primitive.cycles).evaluate(extents)
    lost, scratch, planes = 0.0, 0.0, extents["u"] * extents["v"]
    most = int(dict(schedule.options)["points"])
    levels = cache_levels(machine)
    near, bandwidth = levels[max(len(levels) - 2, 0)]
    for count, sizes in Nest.of(kernel, schedule).tiles():
        vectors, points = ceil(sizes["co"] / registers.lanes), sizes["th"] * sizes["tw"]
        took = 0.0
        for part in register_tiles(points, most):
            took += sizes["ci"] * registers.step_cycles(part, vectors)
            took += CALL_CYCLES + 2.0 * part * vectors
        best = points * vectors * sizes["ci"] / registers.vectors_per_cycle
        lost += count * planes * (took - best)
        elements: Any = parse_expression(primitive.scratch).evaluate(sizes)
        if 4 * int(elements) > USABLE * near:
            # Written and read: the inputs once in a block, which the first channels share.
            scratch += 2 * count * 4 * int(elements) * sizes["co"] / extents["co"]
    images = sum(box_bytes(o, extents) for o in kernel.operands if o.role in _IMAGES)
    far = scratch + (images if images > near else 0)
    return float(cycles) + lost + far / bandwidth


_IMAGES = ("input", "residual", "output")
