"""Peel edge iterations, so that every compute has constant sizes (and constant padding)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from tilewright.errors import refuse
from tilewright.ir import Block, Operation, StringAttr, integer
from tilewright.machine import Machine
from tilewright.planning.domain import Affine, Interval
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    ProgramOp,
    TensorOp,
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
    tensor mean, and ``padding`` peels the iterations that touch it, so that the padding of each
    compute is constant too. Primitives that take sizes at run time are left alone unless
    ``everywhere`` is set.

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
    padding: bool = False
    everywhere: bool = False

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Peel the loops of one program."""
        computes = [op for op in program.walk() if isinstance(op, ComputeOp)]
        fixed = {p.name for p in machine.primitives if p.sizes == "fixed"}
        if not self.everywhere and not any(op.primitive.data in fixed for op in computes):
            return
        axes = _padded_axes(computes, program) if self.padding else []
        extents = {dim: (0, extent) for dim, extent in program.extents.items()}
        _Peeler(program, axes).block(program.body.block, _Place(extents, frozenset(extents)))
        _rename(program)


@dataclass(frozen=True)
class _Place:
    """Intervals of the dims; the start is meaningful for ``exact`` dims only."""

    dims: dict[str, Interval]
    exact: frozenset[str]

    def within(self, dim: str, interval: Interval, exact: bool) -> _Place:
        exact_dims = self.exact | {dim} if exact else self.exact - {dim}
        return replace(self, dims={**self.dims, dim: interval}, exact=exact_dims)


def _padded_axes(computes: list[ComputeOp], program: ProgramOp) -> list[tuple[Affine, int]]:
    """Axes of the anchors' operands whose boxes reach beyond the tensor somewhere."""
    whole = {dim: (0, extent) for dim, extent in program.extents.items()}
    axes: dict[tuple[Affine, int], None] = {}
    for compute in computes:
        anchor = compute.stages[0]
        for value, window in zip(anchor.inputs, anchor.windows.data, strict=False):
            owner = value.owner
            if isinstance(owner, BufferOp):
                owner = owner.tensor_op
            if not isinstance(owner, TensorOp):
                continue
            for axis, extent in zip(window.data, owner.result.type.get_shape(), strict=True):
                start, size = axis.interval(whole)
                if start < 0 or start + size > extent:
                    axes[axis, extent] = None
    return list(axes)


class _Peeler:
    def __init__(self, program: ProgramOp, axes: list[tuple[Affine, int]]) -> None:
        self.program = program
        self.axes = axes
        self.computes = 1

    def block(self, block: Block, place: _Place) -> None:
        """Peel the loops in a block."""
        for op in list(block.ops):
            if isinstance(op, LoopOp):
                self.loop(op, place)

    def loop(self, loop: LoopOp, place: _Place) -> None:
        """Replace a loop by one loop per segment, and peel their bodies."""
        dim = loop.dim.data
        start, size = place.dims[dim]
        segments = self.segments(loop, place)
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
            once = upper - lower == step
            exact = once and dim in place.exact
            inner = place.within(dim, (start + lower, step), exact)
            if once and step == size:
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

    def segments(self, loop: LoopOp, place: _Place) -> list[tuple[int, int, int]]:
        """Lower, upper, step of the runs of iterations of equal size (and no padding)."""
        dim, lower, step = loop.dim.data, loop.lower_bound, loop.step_size
        size = place.dims[dim][1]
        upper = min(loop.upper_bound, size)
        whole = lower + (upper - lower) // step * step
        segments = [(lower, whole, step)] if whole > lower else []
        if whole < upper:
            segments.append((whole, upper, upper - whole))
        axes = [item for item in self.axes if dim in item[0].dims]
        if not axes or dim not in place.exact:
            return segments
        return [part for segment in segments for part in self._by_padding(dim, segment, place)]

    def _by_padding(
        self, dim: str, segment: tuple[int, int, int], place: _Place
    ) -> list[tuple[int, int, int]]:
        lower, upper, step = segment
        start = place.dims[dim][0]
        parts: list[tuple[int, int, int]] = []
        plain = False
        for at in range(lower, upper, step):
            inside = not any(
                self._is_padded(axis, extent, {**place.dims, dim: (start + at, step)})
                for axis, extent in self.axes
                if dim in axis.dims
            )
            if inside and plain:
                first, _, _ = parts.pop()
                parts.append((first, at + step, step))
            else:
                parts.append((at, at + step, step))
            plain = inside
            if len(parts) > MAXIMUM_COMPUTES:
                break
        return parts

    def _is_padded(self, axis: Affine, extent: int, dims: dict[str, Interval]) -> bool:
        low, size = axis.interval(dims)
        return low < 0 or low + size > extent


def _keep_nothing(op: Operation) -> None:
    """Take from a loop's operation what it would leave to the next iteration: there is none."""
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
