"""Peel edge iterations, so that every compute has constant sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tilewright.errors import refuse
from tilewright.ir import Block, Operation, StringAttr, integer
from tilewright.machine import Machine
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    ProgramOp,
    enclosing_loops,
)
from tilewright.tile.passes.base import TilePass

MAXIMUM_COMPUTES = 512
"""Computes of a peeled program beyond which peeling is refused."""


@dataclass(frozen=True)
class Boundary(TilePass):
    """Splits loops at the edge, for primitives whose instances have fixed sizes.

    A loop whose step does not divide its range becomes a main loop and one iteration for the
    rest, each with a compute of its own; so does every loop around or within it, as far as sizes
    still differ. This is the first of the two ways of swATOP, section 4.5.3 (switch to a primitive
    of other parameters at the edge); the second, padding the edge, is what windows beyond the
    tensor mean. Primitives that take sizes at run time are left alone unless ``everywhere`` is
    set.

    Before::

        tile.loop "oh" 0 to 10 step 4 {
          tile.compute ...
        }

    After::

        tile.loop "oh" 0 to 8 step 4 {
          tile.compute ...
        }
        tile.loop "oh" 8 to 10 step 2 {
          tile.compute ...
        }
    """

    name = "boundary"
    everywhere: bool = False

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Peel the loops of one program."""
        computes = [op for op in program.walk() if isinstance(op, ComputeOp)]
        fixed = {p.name for p in machine.primitives if p.sizes == "fixed"}
        if not self.everywhere and not any(op.primitive.data in fixed for op in computes):
            return
        _Peeler(program).block(program.body.block, program.extents)
        _rename(program)


class _Peeler:
    def __init__(self, program: ProgramOp) -> None:
        self.program = program
        self.computes = 1

    def block(self, block: Block, sizes: Mapping[str, int]) -> None:
        """Peel the loops in a block, around which dims have some sizes."""
        for op in list(block.ops):
            if isinstance(op, LoopOp):
                self.loop(op, sizes)

    def loop(self, loop: LoopOp, sizes: Mapping[str, int]) -> None:
        """Replace a loop by one loop per segment, and peel their bodies."""
        dim, size = loop.dim.data, sizes[loop.dim.data]
        segments = _segments(loop, size)
        self.computes += len(segments) - 1
        if self.computes > MAXIMUM_COMPUTES:
            raise refuse(
                "tile-boundary",
                f"peeling the edges gives more than {MAXIMUM_COMPUTES} computes",
                self.program.symbol.data,
                "choose tile sizes that divide the extents",
            )
        loops = [loop, *(loop.clone() for _ in segments[1:])]
        block = loop.parent_block()
        if block is None:
            return
        for before, after in pairwise(loops):
            block.insert_op_after(after, before)
        for part, (lower, upper, step) in zip(loops, segments, strict=True):
            inner = {**sizes, dim: step}
            if upper - lower == step == size:
                for op in list(part.body.block.ops):
                    _keep_nothing(op)
                    op.detach()
                    block.insert_op_before(op, part)
                    if isinstance(op, LoopOp):
                        self.loop(op, inner)
                part.detach()
                part.erase()
                continue
            part.lower, part.upper = integer(lower), integer(upper)
            part.step = integer(step)
            self.block(part.body.block, inner)


def _segments(loop: LoopOp, size: int) -> list[tuple[int, int, int]]:
    """Lower, upper, step of the runs of iterations of equal size, in an interval of some size."""
    lower, step, upper = loop.lower_bound, loop.step_size, min(loop.upper_bound, size)
    whole = lower + (upper - lower) // step * step
    segments = [(lower, whole, step)] if whole > lower else []
    return [*segments, (whole, upper, upper - whole)] if whole < upper else segments


def _keep_nothing(op: Operation) -> None:
    """Remove from a loop's operation what it leaves to a next iteration, which it has not."""
    for inner in op.walk():
        if not isinstance(inner, (BufferOp, DomainOp)):
            continue
        loops = enclosing_loops(inner)
        if loops and loops[-1].body.block is op.parent_block():
            inner.properties.pop("circular", None)
            inner.properties.pop("sliding", None)


def _rename(program: ProgramOp) -> None:
    """Give the clones of a buffer names of their own."""
    taken = {op.symbol.data for op in program.walk() if isinstance(op, BufferOp)}
    seen: set[str] = set()
    for op in program.walk():
        if not isinstance(op, BufferOp):
            continue
        name, number = op.symbol.data, 2
        if name in seen:
            while f"{name}.{number}" in taken:
                number += 1
            op.symbol = StringAttr(f"{name}.{number}")
            taken.add(op.symbol.data)
        seen.add(op.symbol.data)
