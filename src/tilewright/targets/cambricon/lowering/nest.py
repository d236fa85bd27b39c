"""A tile program taken apart: one chain of loops, the buffers with their depths, one compute.

The nest also says where its tiles lie: which dims a tile spans while the loops stand somewhere,
and which box of an operand its buffer holds meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Box, Spans
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.tile.dialect import BufferOp, ComputeOp, LoopOp, MoveOp, ProgramOp, TensorOp


@dataclass(frozen=True)
class Filled:
    """A buffer that is filled, or whose tensor stays, and how many loops step through its boxes."""

    buffer: BufferOp
    depth: int


@dataclass(frozen=True)
class Tile:
    """The tile that is computed."""

    spans: Spans
    bases: dict[BufferOp, Value]
    """Addresses of the buffers' slots."""
    buffered: Callable[[BufferOp], Spans]
    """The dims of what a buffer holds, which is more than the tile's own part where loops step
    through it."""


@dataclass
class Nest:
    """The loops, transfers and compute operation of a tile program."""

    e: Emitter
    program: ProgramOp
    loops: list[LoopOp]
    """Outermost first; loops that run once left out."""
    loads: list[Filled]
    """Loads in program order; those whose tensors earlier kernels have left come first."""
    output: Filled
    compute: ComputeOp
    operands: Mapping[BufferOp, Operand]

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents of the dims."""
        return self.program.extents

    @cached_property
    def steps(self) -> dict[str, int]:
        """Tile sizes of the dims that have a loop."""
        return {loop.dim.data: loop.step_size for loop in self.loops}

    def extent(self, dim: str) -> int:
        """Extent of a dim; 1 for one that the kernel lacks."""
        return self.extents.get(dim, 1)

    def tile_size(self, dim: str) -> int:
        """Largest size of a tile along a dim."""
        return min(self.steps.get(dim, self.extent(dim)), self.extent(dim))

    @property
    def looped(self) -> frozenset[str]:
        """Dims that have a loop over tiles."""
        return frozenset(self.steps)

    @property
    def weights(self) -> list[BufferOp]:
        """The buffers in the matrix scratchpad that are loaded."""
        loads = (load.buffer for load in self.loads)
        return [buffer for buffer in loads if buffer.memory == "msm" and buffer.stays is None]

    def depth(self, buffer: BufferOp) -> int:
        """Return the number of loops around a buffer's transfer."""
        return next(move.depth for move in (*self.loads, self.output) if move.buffer is buffer)

    def first_spans(self, buffer: BufferOp | None = None) -> Spans:
        """The dims of the first tile, or of the first box of a buffer: all is known of them."""
        around = self.loops[: None if buffer is None else self.depth(buffer)]
        steps = {loop.dim.data: loop.step_size for loop in around}
        size = {dim: min(steps.get(dim, extent), extent) for dim, extent in self.extents.items()}
        return Spans(dict.fromkeys(self.extents, 0), size)

    def spans(self, starts: Sequence[Value], depth: int | None = None) -> Spans:
        """The dims of a tile whose loops stand at ``starts``; of the first ``depth`` loops alone.

        Of two loops over one dim the inner one counts from where the outer one stands.
        """
        start: dict[str, Value] = dict.fromkeys(self.extents, 0)
        size: dict[str, Value] = dict(self.extents)
        around = list(zip(self.loops, starts, strict=True))[:depth]
        for dim in dict.fromkeys(loop.dim.data for loop, _ in around):
            extent, step = self.extents[dim], 0
            for loop, at in around:
                if loop.dim.data == dim:
                    start[dim], step = self.e.add(start[dim], at), loop.step_size
            size[dim] = step
            if extent % step:
                size[dim] = self.e.minimum(self.e.subtract(extent, start[dim]), step)
        return Spans(start, size)

    def end(self, number: int, starts: Sequence[Register]) -> Value:
        """Return the end of loop ``number`` while the loops around it stand at ``starts``."""
        loop = self.loops[number]
        around = [other for other in self.loops[:number] if other.dim == loop.dim]
        extent = self.extents[loop.dim.data]
        if not around:
            return extent
        step = around[0].step_size
        if extent % step == 0:
            return step
        # The last tile of the loop around is a short one.
        return self.e.minimum(self.e.subtract(extent, starts[self.loops.index(around[0])]), step)

    def _stepped(self, buffer: BufferOp) -> frozenset[str]:
        """Dims whose loops step through what a buffer holds."""
        within = (loop.dim.data for loop in self.loops[self.depth(buffer) :])
        return frozenset(within) & buffer.window.dims

    def _buffered(self, buffer: BufferOp, spans: Spans, starts: Sequence[Value]) -> Spans:
        """Return the spans that a buffer holds while the tile of ``spans`` is computed."""
        if self.operands[buffer].stays or not self._stepped(buffer):
            return spans
        return self.spans(starts, self.depth(buffer))

    def tile(self, starts: Sequence[Value], slot: Callable[[BufferOp], Value]) -> Tile:
        """The tile whose loops stand at ``starts``; ``slot`` has the address of a buffer's."""
        e = self.e
        spans = self.spans(starts)
        bases: dict[BufferOp, Value] = {}
        for buffer, operand in self.operands.items():
            if operand.stays:
                bases[buffer] = operand.lies(e, spans, self.extents)
            else:
                bases[buffer] = slot(buffer)
        return Tile(spans, bases, lambda buffer: self._buffered(buffer, spans, starts))

    def box(self, operand: Operand, tile: Tile) -> Box:
        """The box that an operand's buffer holds while a tile is computed."""
        return operand.box(self.e, tile.buffered(operand.buffer), self.extents)

    def inside(self, operand: Operand) -> frozenset[str]:
        """Dims whose loops step through what an operand's buffer holds."""
        return frozenset() if operand.stays else self._stepped(operand.buffer)

    def base(self, operand: Operand, tile: Tile) -> Value:
        """Return the address at which a tile's own part of a buffer begins."""
        e, at = self.e, tile.bases[operand.buffer]
        inside = self.inside(operand)
        if not inside:
            return at
        strides, first = self.box(operand, tile).strides, tile.buffered(operand.buffer).start
        for axis, stride in zip(operand.buffer.window.data, strides, strict=True):
            for dim, step in axis.terms:
                if dim in inside:
                    further = e.subtract(tile.spans.start[dim], first[dim])
                    at = e.add(at, e.multiply(e.multiply(further, step), stride))
        return at

    def stride(self, operand: Operand, tile: Tile, dim: str) -> Value:
        """Bytes in a buffer from one index of a dim to the next; 0 for one that it lacks."""
        strides = self.box(operand, tile).strides
        axes = zip(operand.buffer.window.data, strides, strict=True)
        return next((stride for axis, stride in axes if dim in axis.dims), 0)

    def reduced(self, tile: Tile) -> tuple[Value, Value]:
        """Two values that are 0 in the first tile of a reduction and in the last, else positive."""
        e = self.e
        before: Value = 0
        after: Value = 0
        for dim in self.program.reduction_dims:
            if dim not in self.looped:
                continue
            start, size = tile.spans.start[dim], tile.spans.of(dim)
            before = e.add(before, start)
            after = e.add(after, e.subtract(self.extents[dim], e.add(start, size)))
        return before, after


def nest_of(program: ProgramOp, e: Emitter, machine: Machine, bases: Mapping[str, int]) -> Nest:
    """Take a program apart; refuses (``lower-nest``) what is no single chain of loops."""
    where = program.symbol.data
    block = program.body.block
    depths: dict[BufferOp, int] = {}
    loops: list[LoopOp] = []
    loads: list[Filled] = []
    stores: list[BufferOp] = []
    compute: ComputeOp | None = None
    while True:
        inner: LoopOp | None = None
        for op in block.ops:
            if isinstance(op, TensorOp):
                continue
            if isinstance(op, BufferOp):
                depths[op] = len(loops)
            elif isinstance(op, MoveOp):
                if op.loads:
                    loads.append(Filled(op.buffer, depths[op.buffer]))
                else:
                    stores.append(op.buffer)
            elif isinstance(op, LoopOp) and inner is None and compute is None:
                inner = op
            elif isinstance(op, ComputeOp) and compute is None and inner is None:
                compute = op
            else:
                raise refuse("lower-nest", f"{op.name} stands beside another loop", where)
        if inner is None:
            break
        around = [loop for loop in loops if loop.dim == inner.dim]
        if inner.lower_bound or len(around) > 1 or any(map(_uneven, around, [inner])):
            raise refuse(
                "lower-nest", f"dim {inner.dim.data} has two loops", where,
                "plan the kernel with one level of tiles, or whole ones at the outer level",
            )  # fmt: skip
        loops.append(inner)
        block = inner.body.block
    result = None if compute is None else compute.output.owner
    if isinstance(result, BufferOp) and result.stays is not None:
        stores.append(result)
    if compute is None or len(stores) != 1:
        raise refuse("lower-nest", "a program has one compute and one result", where)
    for buffer in depths:
        if buffer.stays is not None:
            around = [n for n, loop in enumerate(loops) if loop.dim.data in buffer.window.dims]
            depths[buffer] = max(around, default=-1) + 1
    (output,) = stores
    resident = [b for b in depths if b.stays is not None and b is not output]
    loads[:0] = [Filled(buffer, depths[buffer]) for buffer in resident]
    buffers = [*(load.buffer for load in loads), output]
    operands = {buffer: Operand(buffer, machine, bases) for buffer in buffers}
    return Nest(e, program, loops, loads, Filled(output, depths[output]), compute, operands)


def _uneven(outer: LoopOp, inner: LoopOp) -> bool:
    """Return True if the outer of two loops over one dim does not step by whole inner tiles."""
    return outer.step_size % inner.step_size > 0 or inner.upper_bound != outer.step_size
