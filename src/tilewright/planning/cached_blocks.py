"""Schedules of primitives that work in scratch memory: blocks of tiles, and channels within them.

A block's inputs are transformed once, into scratch, when the loop over output channels starts; so
that loop is the innermost. The larger a block, the less often the weights are read again; the
smaller, the nearer its scratch stays.

Weights that are yet to be transformed (the stage then has the window's taps as dims ``kh`` and
``kw``) are transformed in registers, for a few planes at a time of one vector of output channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from tilewright.machine import Primitive, parse_expression
from tilewright.planning.domain import Kernel
from tilewright.planning.registers import REGISTERS, Registers
from tilewright.planning.schedule import Level, Schedule

_VECTORS = (1, 2, 3, 4, 6)

_PLANES = (2, 3, 4, 6)
"""Planes that a register tile covers where weights are transformed in registers.

One alone is as fast while weights are near, and loses up to a fifth when they are not (measured).
"""

_SPARE = 2
"""Vector registers that sums of the weights' transform need."""


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
    """Blocks of whole rows of tiles, or of parts of one row, that fit the kernel's scratch.

    Explicit and separable convolutions have blocks of points in place of tiles, and register tiles
    in a row.
    """
    extents = kernel.anchor.extents
    room = next(o.shape[0] for o in kernel.inputs if o.role == "scratch")
    # Tiles of outputs, or outputs one by one.
    row, column = ("th", "tw") if "th" in extents else ("oh", "ow")
    rows, columns = extents[row], extents[column]
    blocks = [(height, columns) for height in _shares(rows)]
    blocks += [(1, width) for width in _shares(columns) if width < columns]
    heights, widths = np.array(blocks).T
    outer = ("g", "n") if "g" in extents else ("n",)
    for vectors, options in _register_tiles(extents, registers):
        part = min(vectors * registers.lanes, extents["co"])
        sizes = {**extents, "n": 1, "co": part, row: heights, column: widths}
        needed: Any = parse_expression(primitive.scratch).evaluate(sizes)
        fitting = np.broadcast_to(needed, len(blocks)) <= room
        if "c" in extents and (fitting & (widths == columns)).any():
            # Parts of a row would read what windows have in common again for every part.
            fitting = fitting & (widths == columns)
        for (height, width), fits in zip(blocks, fitting, strict=True):
            if fits:
                tile = (("co", part), *((dim, 1) for dim in outer), (row, height), (column, width))
                level = Level(REGISTERS, tile, (*reversed(outer), row, column, "co"))
                yield Schedule(primitive.name, (level,), options=options)


def _register_tiles(
    extents: Mapping[str, int], registers: Registers
) -> Iterator[tuple[int, tuple[tuple[str, int], ...]]]:
    """Vectors of output channels, with the options that a schedule has."""
    channels = ceil(extents["co"] / registers.lanes)
    counts = range(1, registers.count + 1)
    transforming = "kh" in extents and "v" in extents
    for number in _PLANES if transforming else _VECTORS:
        spare = _SPARE if transforming else 0
        fitting = [p for p in counts if replace(registers, temporaries=spare).fits(p, number)]
        if not fitting:
            continue
        if not transforming:
            if number <= channels:
                # A separable convolution's windows have register tiles of their own.
                windows = (("columns", registers.count // 2 - 2),) if "c" in extents else ()
                yield number, (*windows, ("points", fitting[-1]))
        elif not extents["v"] % number:
            yield 1, (("planes", number), ("points", fitting[-1]))


def _shares(extent: int) -> list[int]:
    """The sizes of even parts of an extent."""
    return sorted({ceil(extent / parts) for parts in range(1, extent + 1)})
