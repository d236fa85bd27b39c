"""The limits of a kernel under a schedule: a slow move, the many small blocks of an operand, or the
issue of short instructions.

They are said beside a kernel's bounds. A slow move is part of them. Blocks and issue are not:
another schedule, or another place in main memory, may have fewer::

    y, 8 channels of 4096 pixels in a tensor of 24:    4096 blocks of 16 bytes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.machine import Machine, Move, Primitive, parse_expression
from tilewright.planning.cost.bounds import primitives_for, slow_move
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.own import lies_by_tile
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.footprint import path_of, run_elements


@dataclass(frozen=True)
class Blocks:
    """The transfers of an operand whose blocks move one by one."""

    operand: str
    count: int
    """The number of blocks in the whole kernel, at least."""
    bytes: int
    """The bytes of one block."""
    latency: int
    """Cycles of each, beside its bytes."""

    @property
    def cycles(self) -> int:
        """The cycles of all latencies, one after the other."""
        return self.count * self.latency

    def __str__(self) -> str:
        return (
            f"{self.operand} moves in {self.count:,} blocks of {self.bytes:,} bytes, each with "
            f"{self.latency} cycles of latency"
        )


def move_text(kernel: Kernel, machine: Machine, schedule: Schedule) -> str:
    """The move that is slower than all else of a kernel, with its speed; "" for none."""
    primitive = _primitive(machine, schedule)
    name = "" if primitive is None else slow_move(kernel, machine, primitive)
    if not name:
        return ""
    (speed,) = (move.bytes_per_cycle for move in machine.moves if move.name == name)
    return f"the move {name}, {speed:g} byte{'s' if speed != 1 else ''} a cycle"


def most_blocks(kernel: Kernel, machine: Machine, schedule: Schedule) -> Blocks | None:
    """The operand whose blocks cost the most latency; None where moves take boxes as they are."""
    primitive = _primitive(machine, schedule)
    if primitive is None or kernel.producers:
        return None
    counted = [
        blocks
        for operand in kernel.operands
        if (blocks := _blocks(operand, kernel, machine, primitive, schedule)) is not None
    ]
    return max(counted, key=lambda blocks: blocks.cycles, default=None)


def issue_cycles(kernel: Kernel, machine: Machine, schedule: Schedule) -> int:
    """Cycles that issuing the instructions of all tiles takes (``Primitive.issue``)."""
    primitive, extents = _primitive(machine, schedule), kernel.anchor.extents
    if primitive is None or kernel.producers:
        return 0
    sizes = {dim: schedule.levels[-1].size(dim, extent) for dim, extent in extents.items()}
    tiles = prod(-(-extents[dim] // sizes[dim]) for dim in extents)
    return tiles * int(parse_expression(primitive.issue).evaluate(sizes))


def _primitive(machine: Machine, schedule: Schedule) -> Primitive | None:
    return next((p for p in machine.primitives if p.name == schedule.primitive), None)


def latency_of_blocks(kernel: Kernel, machine: Machine) -> float:
    """Cycles that an engine takes at least for the latencies of a kernel's blocks, however it is
    cut: larger tiles than the whole have no fewer blocks."""

    def of(primitive: Primitive) -> float:
        busy: dict[str, float] = {}
        for operand in kernel.operands:
            move = _move(operand, kernel, machine, primitive)
            if move is not None:
                count, _ = _counted(operand, kernel.anchor.extents)
                latency = count * move.latency / move.in_flight
                busy[move.engine] = busy.get(move.engine, 0.0) + latency
        return max(busy.values(), default=0.0)

    return min((of(primitive) for primitive in primitives_for(kernel, machine)), default=0.0)


def _move(operand: Operand, kernel: Kernel, machine: Machine, primitive: Primitive) -> Move | None:
    """The move of an operand that takes it block by block; None if none does."""
    storage = primitive.operands.get(operand.role)
    if storage is None or operand.resident_in or storage.memory == machine.main:
        return None
    outputs, home = operand is kernel.output, machine.home(constant=operand.is_constant)
    move = path_of(operand, machine, home, storage.memory, output=outputs)[0]
    constant = operand.role in ("weight", "bias") and not operand.computed
    by_tile = constant and lies_by_tile(storage)
    return None if by_tile or not move.own.block_by_block() else move


def _counted(operand: Operand, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The blocks of a tile of these sizes, and the elements of one."""
    axes = zip(operand.access, operand.shape, strict=True)
    lengths = [min(axis.span(sizes), extent) for axis, extent in axes]
    if not lengths:
        return 1, 1
    run = int(run_elements(operand, [np.array([length]) for length in lengths])[0])
    return prod(lengths) // run, run


def _blocks(
    operand: Operand, kernel: Kernel, machine: Machine, primitive: Primitive, schedule: Schedule
) -> Blocks | None:
    move, extents = _move(operand, kernel, machine, primitive), kernel.anchor.extents
    if move is None:
        return None
    # The largest tile: what stays while smaller ones are computed moves in one.
    sizes = {dim: schedule.levels[0].size(dim, extent) for dim, extent in extents.items()}
    blocks, run = _counted(operand, sizes)
    if blocks <= 1:
        return None
    tiles = prod(-(-extents[dim] // sizes[dim]) for dim in extents if dim in operand.dims)
    return Blocks(operand.name, tiles * blocks, run * operand.element_bytes, move.latency)
