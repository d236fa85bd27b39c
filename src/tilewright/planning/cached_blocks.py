"""Schedules of primitives that work in scratch memory: blocks of tiles, and channels within them.

A block's inputs are transformed once, into scratch, when the loop over output channels starts; so
that loop is the innermost. The larger a block, the less often the weights are read again; the
smaller, the nearer its scratch stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np

from tilewright.machine import Primitive, parse_expression
from tilewright.planning.domain import Kernel
from tilewright.planning.registers import REGISTERS, Registers
from tilewright.planning.schedule import Level, Schedule

_VECTORS = (1, 2, 3, 4, 6)


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
    heights, widths = np.array(blocks).T
    channels = ceil(extents["co"] / registers.lanes)
    for vectors in _VECTORS:
        if vectors > channels or not registers.fits(1, vectors):
            continue
        widest = max(p for p in range(1, registers.count + 1) if registers.fits(p, vectors))
        part = min(vectors * registers.lanes, extents["co"])
        sizes = {**extents, "n": 1, "co": part, "th": heights, "tw": widths}
        needed: Any = parse_expression(primitive.scratch).evaluate(sizes)
        for (height, width), elements in zip(
            blocks, np.broadcast_to(needed, len(blocks)), strict=True
        ):
            if int(elements) <= room:
                tile = (("co", part), ("n", 1), ("th", height), ("tw", width))
                level = Level(REGISTERS, tile, ("n", "th", "tw", "co"))
                yield Schedule(primitive.name, (level,), options=(("points", widest),))


def _shares(extent: int) -> list[int]:
    """The sizes of even parts of an extent."""
    return sorted({ceil(extent / parts) for parts in range(1, extent + 1)})
