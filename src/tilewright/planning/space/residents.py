"""Tiles of operands that stay on the chip between kernels, and are used where they lie.

What stays is a result, never a partial sum. Where moves to a memory are one contiguous block each,
so is what a tile uses there; weights may lie tile by tile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel, Operand, with_operands
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import Bools, Ints


def holding(kernel: Kernel, names: Collection[str], memory: str) -> Kernel:
    """The kernel with the operands of these names resident in a memory."""

    def operand(read: Operand) -> Operand:
        return replace(read, resident_in=memory) if read.name in names else read

    return with_operands(kernel, operand)


def whole_sums(kernel: Kernel) -> tuple[str, ...]:
    """The dims that no tile may cut because the result is resident."""
    return kernel.anchor.reduction if kernel.output.resident_in else ()


def is_solid(kernel: Kernel, sizes: Mapping[str, Ints]) -> Bools:
    """Per row of tile sizes, whether no tile of the result has holes.

    Where two dims run along one axis, such as groups and their channels, tiles of several groups
    must have all of each group's channels.
    """
    extents = kernel.anchor.extents
    solid = np.ones(np.broadcast_shapes(*(column.shape for column in sizes.values())), np.bool_)
    for axis in kernel.output.access:
        terms = sorted(axis.terms, key=lambda term: -abs(term[1]))
        for outer, inner in pairwise([dim for dim, _ in terms if dim in sizes]):
            solid &= (sizes[outer] == 1) | (sizes[inner] >= extents[inner])
    return solid


def usable(kernel: Kernel, sizes: Mapping[str, Ints], machine: Machine) -> Bools:
    """Per row of tile sizes, whether resident operands can be used where they lie."""
    extents = kernel.anchor.extents
    suits = np.ones(np.broadcast_shapes(*(column.shape for column in sizes.values())), np.bool_)
    for dim in whole_sums(kernel):
        suits &= sizes.get(dim, extents[dim]) == extents[dim]
    for operand in kernel.operands:
        memory = operand.resident_in
        if memory and operand.role != "weight" and _takes_blocks(machine, memory):
            suits &= _one_run(operand, extents, sizes)
    return suits


def _takes_blocks(machine: Machine, memory: str) -> bool:
    return any(move.target == memory and move.own.block_by_block() for move in machine.moves)


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
