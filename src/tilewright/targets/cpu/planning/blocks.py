"""Schedules of primitives that work in scratch memory: blocks of tiles, and channels within them.

A block's inputs are transformed once, into scratch, when the loop over output channels starts; so
that loop is the innermost. The larger a block, the less often the weights are read again; the
smaller, the nearer its scratch stays.

Weights that are yet to be transformed (the stage then has the window's taps as dims ``kh`` and
``kw``) are transformed as products need them, into two small panels of scratch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from tilewright.machine import Primitive, parse_expression
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.planning.registers import REGISTERS, Registers

_VECTORS = (1, 2, 3, 4, 6)

PANEL = 64
"""Input channels whose weights are transformed at a time; half or twice as many are as good, more
or fewer are not (measured)."""

FEW_TILES = 8
"""The most tiles that use a panel: half of it lies in the first cache, and what the products of
fewer input channels write and read again is little (measured for 4 and 16 tiles)."""


def panel_channels(channels: int, tiles: int) -> int:
    """Input channels of a panel of weights that are transformed as ``tiles`` tiles need them."""
    return min(channels, PANEL if tiles > FEW_TILES else PANEL // 2)


def register_tiles(points: int, most: int) -> list[int]:
    """The fewest register tiles of at most ``most`` points, as even as can be, largest first."""
    parts = ceil(points / most)
    small, more = divmod(points, parts)
    return [small + 1] * more + [small] * (parts - more)


def runs_of(parts: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Register tiles of one size each: points, how many tiles, the first one's point and number."""
    start = number = 0
    for points in sorted(set(parts), reverse=True):
        times = parts.count(points)
        yield points, times, start, number
        start += points * times
        number += times


def scratch_elements(primitive: Primitive, schedule: Schedule, kernel: Kernel) -> int:
    """Elements of scratch that a schedule's instances need."""
    sizes = dict(kernel.anchor.extents)
    for level in schedule.levels:
        sizes = {dim: level.size(dim, extent) for dim, extent in sizes.items()}
    elements: Any = parse_expression(own_of(primitive).scratch).evaluate(sizes)
    return int(elements)


def block_schedules(
    kernel: Kernel, primitive: Primitive, registers: Registers
) -> Iterator[Schedule]:
    """Blocks of whole rows of tiles, or of parts of one row, that fit the kernel's scratch.

    Separable convolutions have blocks of points in place of tiles, and register tiles in a row.
    """
    extents = kernel.anchor.extents
    room = next(o.shape[0] for o in kernel.inputs if o.role == "scratch")
    # Tiles of outputs, or outputs one by one.
    row, column = ("th", "tw") if "th" in extents else ("oh", "ow")
    rows, columns = extents[row], extents[column]
    blocks = [(height, columns) for height in shares(rows)]
    blocks += [(1, width) for width in shares(columns) if width < columns]
    heights, widths = np.array(blocks).T
    outer = ("g", "n") if "g" in extents else ("n",)
    for vectors, options in _register_tiles(extents, registers):
        part = min(vectors * registers.lanes, extents["co"])
        sizes = {**extents, "n": 1, "co": part, row: heights, column: widths}
        needed: Any = parse_expression(own_of(primitive).scratch).evaluate(sizes)
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
    # Where weights are yet to be transformed, a row's planes share the work by vectors.
    most = extents["u"] if "kh" in extents and "v" in extents else max(_VECTORS)
    for number in _VECTORS:
        fitting = [p for p in range(1, registers.count + 1) if registers.fits(p, number)]
        if fitting and number <= min(channels, most):
            # A separable convolution's windows have register tiles of their own.
            windows = (("columns", registers.count // 2 - 2),) if "c" in extents else ()
            yield number, (*windows, ("points", fitting[-1]))


def shares(extent: int) -> list[int]:
    """The sizes of even parts of an extent."""
    return sorted({ceil(extent / parts) for parts in range(1, extent + 1)})
