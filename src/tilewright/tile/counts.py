"""Counts of a tile program: bytes by move, tiles by primitive, instructions.

Counts follow from the program alone and hold for every schedule of its engines in time, so figures
that are sums over what is done, such as energy (machine/energy.py), are made of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.types import Array, element_size, layout_of
from tilewright.machine import Machine, Move
from tilewright.machine.energy import energy_of, has_energy
from tilewright.planning.layout import Layout
from tilewright.simulate.commands import transfer_bytes
from tilewright.tile.boxes import box_columns
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    MoveOp,
    ProgramOp,
    SignalOp,
    TensorOp,
    WaitOp,
)
from tilewright.tile.iteration import Order, Rows
from tilewright.tile.machine_parts import memory_of

Sizes = tuple[tuple[str, int], ...]
"""Extents of a tile by the primitive's dims."""


@dataclass(frozen=True)
class ProgramCounts:
    """The bytes, tiles and instructions of some tile programs."""

    moved: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes by the move's name, each contiguous block rounded to whole transactions."""
    tiles: Mapping[tuple[str, Sizes], int] = field(default_factory=dict[tuple[str, Sizes], int])
    """By primitive and sizes, the tiles that it computes."""
    instructions: int = 0
    """Commands, signals and waits; moves that are joined travel in one."""

    def __add__(self, other: ProgramCounts) -> ProgramCounts:
        moved, tiles = Counter(self.moved), Counter(self.tiles)
        moved.update(other.moved)
        tiles.update(other.tiles)
        return ProgramCounts(dict(moved), dict(tiles), self.instructions + other.instructions)

    def energy(self, machine: Machine) -> dict[str, float]:
        """Picojoules by memory, move and engine, without what leaks (machine/energy.py)."""
        return energy_of(machine, self.moved, self.tiles, self.instructions)


def counts_of(programs: Iterable[ProgramOp], machine: Machine) -> ProgramCounts:
    """Count the work of some programs on a machine."""
    moved, tiles = Counter[str](), Counter[tuple[str, Sizes]]()
    instructions = 0
    for program in programs:
        order = Order(program)
        for op in program.walk():
            if isinstance(op, MoveOp):
                ends = memory_of(op.source, machine), memory_of(op.target, machine)
                move = machine.move(*ends)
                moved[move.name] += _bytes(op, order, move)
                instructions += 0 if op.joined else order.rows(op).count
            elif isinstance(op, ComputeOp):
                for sizes, count in _sizes(op, order.rows(op)):
                    tiles[op.primitive.data, sizes] += count
                    instructions += count
            elif isinstance(op, SignalOp | WaitOp):
                instructions += order.rows(op).count
    return ProgramCounts(dict(moved), dict(tiles), instructions)


def program_energy(programs: Iterable[ProgramOp], machine: Machine) -> dict[str, float]:
    """Picojoules of a kernel's programs by memory, move and engine, without what leaks; {} where
    the machine has no figures."""
    return counts_of(programs, machine).energy(machine) if has_energy(machine) else {}


def _bytes(op: MoveOp, order: Order, move: Move) -> int:
    """The bytes of all executions of a move, by its boxes further out."""
    buffer = op.buffer
    boxes = box_columns(buffer.outer_window, buffer.outer_shape, order.rows(op))
    kind = buffer.outer_type
    layout = Layout.parse(layout_of(kind), len(buffer.outer_shape))
    sizes = _physical(layout, boxes.clamped_size)
    shape = layout.physical_shape(buffer.outer_shape)
    run, whole = np.ones(boxes.start.shape[1:], np.int64), np.ones(boxes.start.shape[1:], np.bool_)
    for size, extent in zip(sizes[::-1], shape[::-1], strict=True):
        run = np.where(whole, run * size, run)
        whole &= size >= extent
    elements = np.prod(sizes, axis=0, dtype=np.int64) if len(sizes) else run
    blocks = np.where(run > 0, elements // np.maximum(run, 1), 0)
    plain, size = move.model_copy(update={"efficiency": ()}), element_size(kind.element_type)
    first = _first(buffer, layout, boxes.clamped_start, size)
    return int(np.sum(transfer_bytes(plain, run * size, blocks, address=first)))


def _first(buffer: BufferOp, layout: Layout, starts: Array, size: int) -> Array | int:
    """The address of each box's first element in main memory; 0 in a buffer, which lies aligned."""
    tensor = buffer.outer.owner
    if not isinstance(tensor, TensorOp) or tensor.strides is None:
        return 0
    address = np.full(starts.shape[1:], tensor.get("offset"), np.int64)
    for factor, stride in zip(layout.factors, tensor.get("strides"), strict=True):
        place = starts[factor.axis] // factor.divisor
        address += (place % factor.modulus if factor.modulus else place) * stride * size
    return address


def _physical(layout: Layout, sizes: Array) -> list[Array]:
    """The extents of boxes along physical axes; blocks that a box only touches count whole."""
    found: list[Array] = []
    for factor in layout.factors:
        extent = -(-sizes[factor.axis] // factor.divisor)
        found.append(np.minimum(extent, factor.modulus) if factor.modulus else extent)
    return found


def _sizes(op: ComputeOp, rows: Rows) -> list[tuple[Sizes, int]]:
    """The sizes of a compute's tiles by the primitive's dims, each with how many there are."""
    names = op.primitive_names
    dims = sorted(dim for dim in op.dims if dim in rows.dims)
    if not dims or not rows.count:
        return [((), rows.count)] if rows.count else []
    columns: Any = np.stack([np.broadcast_to(rows.size(dim), (rows.count,)) for dim in dims])
    distinct, counts = np.unique(columns, axis=1, return_counts=True)
    return [
        (tuple(zip((names.get(dim, dim) for dim in dims), column, strict=True)), count)
        for column, count in zip(distinct.T.tolist(), counts.tolist(), strict=True)
    ]
