"""Tiles of what stays on the chip.

Operands that are held (``Operand.held``) are used where they lie. A buffer holds a box without
gaps, so every tile's box of a held operand must be one run of it; and what is held is a result,
never a partial sum.

Of weights that several kernels read, as many tiles stay as fit, the last ones: a later kernel then
loads its first tile while an earlier one computes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel, Operand, with_operands
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import Bools, Ints


def holding(kernel: Kernel, names: Collection[str], memory: str) -> Kernel:
    """The kernel with the operands of these names held in a memory."""

    def operand(read: Operand) -> Operand:
        return replace(read, held=memory) if read.name in names else read

    return with_operands(kernel, operand)


def held_text(kernel: Kernel) -> str:
    """The operands that are held, as they stand after a schedule's text; "" for none."""
    names = ", ".join(operand.name for operand in kernel.operands if operand.held)
    return f" held {names}" if names else ""


def whole_sums(kernel: Kernel) -> tuple[str, ...]:
    """The dims that no tile may cut because the result is held."""
    return kernel.anchor.reduction if kernel.output.held else ()


def usable(kernel: Kernel, sizes: Mapping[str, Ints], machine: Machine) -> Bools:
    """Per row of tile sizes, whether held operands can be used where they lie."""
    extents = kernel.anchor.extents
    suits = np.ones(np.broadcast_shapes(*(column.shape for column in sizes.values())), np.bool_)
    for dim in whole_sums(kernel):
        suits &= sizes.get(dim, extents[dim]) == extents[dim]
    for operand in kernel.operands:
        if operand.held and not machine.memory(operand.held).resident:
            suits &= _one_run(operand, extents, sizes)
    return suits


def _one_run(operand: Operand, extents: Mapping[str, int], sizes: Mapping[str, Ints]) -> Bools:
    runs, cut = np.array(True), np.array(False)
    for factor in reversed(Layout.parse(operand.layout, len(operand.shape)).factors):
        extent = operand.shape[factor.axis]
        if factor.modulus or factor.divisor != 1:
            return np.array(False)
        if extent == 1:
            continue
        axis = operand.access[factor.axis]
        low, span = axis.interval({dim: (0, extents.get(dim, 1)) for dim in axis.dims})
        whole, box = np.array(low <= 0 and low + span >= extent), np.array(1)
        for dim, step in axis.terms:
            size = sizes.get(dim, np.array(1))
            whole = whole & (size == extents.get(dim, 1))
            box = box + abs(step) * (size - 1)
        runs = runs & ~(cut & (box > 1))
        cut = cut | ~whole
    return runs


def tile_bytes(cuts: Iterable[tuple[int, int]], element: int) -> tuple[int, ...]:
    """Bytes of every tile of a tensor, in the order in which they lie in memory.

    ``cuts`` has the extent and the tile size of each dim, outermost first; ``element`` is the bytes
    of one element.
    """
    sizes = [element]
    for extent, step in cuts:
        parts = [min(step, extent - at) for at in range(0, extent, step)]
        sizes = [size * part for size in sizes for part in parts]
    return tuple(sizes)


def last_fitting(tiles: Sequence[int], room: int) -> int:
    """Return how many of the last tiles, whose sizes are in bytes, fit together into ``room``
    bytes."""
    count = 0
    for size in reversed(tiles):
        room -= size
        if room < 0:
            break
        count += 1
    return count
