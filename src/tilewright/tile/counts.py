"""Counts of a tile program: bytes by move, tiles by primitive, instructions.

Counts follow from the program alone and hold for every schedule of its engines in time, so figures
that are sums over what is done, such as energy (machine/energy.py), are made of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilewright.ir.types import Array, element_size, layout_of
from tilewright.machine import Machine, Move
from tilewright.machine.energy import energy_of, has_energy
from tilewright.planning.layout import Layout
from tilewright.simulate.accesses import Touch, bandwidth_bytes
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
    """Commands, signals and waits. Joined moves count as one; a move of no bytes does not count."""

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
                move = machine.move(memory_of(op.source, machine), memory_of(op.target, machine))
                touched = _touched(op, order, machine)
                moved[move.name] += int(np.sum(bandwidth_bytes(touched, _plain(move))))
                instructions += 0 if op.joined else int(np.count_nonzero(touched.used))
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


def _plain(move: Move) -> Move:
    """A move of which every byte counts once, whatever bandwidth its block's length reaches."""
    return move.model_copy(update={"efficiency": ()})


def _touched(op: MoveOp, order: Order, machine: Machine) -> Touch:
    """The bytes that each execution of a move touches further out."""
    buffer = op.buffer
    boxes = box_columns(buffer.outer_window, buffer.outer_shape, order.rows(op))
    kind = buffer.outer_type
    layout = Layout.parse(layout_of(kind), len(buffer.outer_shape))
    size = element_size(kind.element_type)
    strides = [stride * size for stride in _strides(buffer, layout)]
    address = np.full(boxes.clamped_start.shape[1:], _offset(buffer), np.int64)
    for factor, stride in zip(layout.factors, strides, strict=True):
        place = boxes.clamped_start[factor.axis] // factor.divisor
        address += (place % factor.modulus if factor.modulus else place) * stride
    return Touch(
        memory=memory_of(op.source, machine),
        write=False,
        address=address,
        sizes=tuple(_physical(layout, boxes.clamped_size)),
        strides=tuple(np.full_like(address, stride) for stride in strides),
        element=np.full_like(address, size),
    )


def _offset(buffer: BufferOp) -> int:
    """The address of what a buffer's moves reach further out; 0 in a buffer, which lies aligned."""
    tensor = buffer.outer.owner
    return tensor.get("offset") if isinstance(tensor, TensorOp) and tensor.offset else 0


def _strides(buffer: BufferOp, layout: Layout) -> list[int]:
    """Elements from one place to the next along each physical axis further out."""
    tensor = buffer.outer.owner
    if isinstance(tensor, TensorOp) and tensor.strides is not None:
        return tensor.get("strides")
    shape = layout.physical_shape(buffer.outer_shape)
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


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
