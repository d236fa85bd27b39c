"""The tiles of one kernel: their dims, what lies in buffers meanwhile, and the loops over them.

A kernel whose tile is the whole of it has no loops; flat.py has those of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.flat import Flat
from tilewright.targets.cambricon.lowering.nest import Nest
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.streams import EARLY
from tilewright.targets.cambricon.lowering.tiles import (
    Fill,
    NewStream,
    Pass,
    Renew,
    Store,
    Tile,
)
from tilewright.tile.dialect import BufferOp, LoopOp


class Walk:
    """The tile loops of one kernel."""

    flat: Flat | None = None

    def hook(self, cycles: float | None = None) -> None:
        """A place in a tile's code where streams may move on.

        It stands so many ``cycles`` behind the place before, if not as many as others do.
        """
        if self.flat is not None and self.flat.streams:
            self.flat.agenda.hook(cycles)

    def __init__(
        self,
        e: Emitter,
        nest: Nest,
        operands: dict[BufferOp, Operand],
        passing: Pass = lambda last: None,
    ) -> None:
        self.e = e
        self.nest = nest
        self.operands = operands
        self.passing = passing
        self.begun: set[BufferOp] = set()
        """Buffers whose first tile is there already."""
        self.renewals: list[tuple[BufferOp, Renew]] = []
        """What is to be done whenever a buffer has been filled anew, before its first tile."""
        self.interval: float | None = None
        """Cycles between hooks, if tiles have them throughout: then all moves wait for hooks."""
        self.places: float | None = None
        """How many hooks the largest tile has then, if that is known."""
        self.pixels: tuple[str, ...] = ()
        """The dims of a tile's pixels, if their results may leave one by one."""
        self.replaced: BufferOp | None = None
        """A buffer whose elements results may replace, one for one."""
        self.pause: Callable[[Operand], int] = lambda operand: 0
        """Cycles until hooks behind a transfer of an operand are due."""
        self.early: Callable[[], float] = lambda: EARLY
        """Part of an interval by which a transfer may have to wait for the one before."""
        self.pieces: Callable[[Operand], int] = lambda operand: 0
        """Transfers of an operand's largest box."""
        self.extents = nest.program.extents
        self.loops: Sequence[LoopOp] = nest.loops
        known = [load for load in nest.loads if load.buffer in operands]
        self.loads = [load for load in known if not operands[load.buffer].stays]

    def pace(self, interval: float, places: float | None = None) -> None:
        """Tiles have hooks throughout, so many cycles apart; the largest one has so many, if that
        is known."""
        self.interval, self.places = interval, places

    def replace(self, operand: Operand) -> None:
        """Results may be written where an operand of as many elements lies."""
        if not operand.stays:
            self.replaced = operand.buffer

    def in_turn(self) -> BufferOp | None:
        """The buffer whose slots are the result's, too: where both have two slots in the room of
        one for each, if both move in streams."""
        out, buffer = self.nest.output, self.replaced
        assert out is not None
        if buffer is None or self.depth(buffer) != out.depth or not out.depth:
            return None
        operand, result = self.operands[buffer], self.operands[out.buffer]
        if (
            result.stays
            or operand.slot_bytes != result.slot_bytes
            or min(operand.slots, result.slots) > 1
        ):
            return None
        return buffer

    def may_trail(self, dims: Sequence[str]) -> None:
        """A tile's results are finished pixel by pixel, in the order of these dims."""
        self.pixels = tuple(dims)

    def finish(self) -> None:
        """Another pixel of a tile is finished."""
        if self.flat is not None and self.flat.trail is not None:
            self.flat.trail.announce()

    def renew(self, operand: Operand, renew: Renew) -> None:
        """Emit code whenever an operand's buffer has been filled anew."""
        self.renewals.append((operand.buffer, renew))

    def emit(
        self,
        fill: Fill,
        compute: Callable[[Tile], None],
        store: Store,
        stream: NewStream,
    ) -> None:
        """All tiles; ``stream`` makes streams for operands whose boxes have several runs."""
        if not self.loops:
            spans = self.spans([])
            bases: dict[BufferOp, Value] = {
                buffer: operand.lies(self.e, spans, self.extents)
                if operand.stays
                else operand.address
                for buffer, operand in self.operands.items()
            }
            for load in sorted(self.loads, key=lambda load: load.buffer.memory != "msm"):
                if load.buffer not in self.begun:
                    fill(self.operands[load.buffer], spans, bases[load.buffer], None)
            tile = Tile(spans, bases, lambda buffer: spans)
            for _, renew in self.renewals:
                renew(tile)
            # A load that waits for the one before would hold up what the tile needs.
            self.passing(False)
            compute(tile)
            assert self.nest.output is not None
            if not self.operands[self.nest.output.buffer].stays:
                store(tile, None)
            return
        self.flat = Flat(self, fill, compute, store, stream)
        self.flat.emit()

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

    def stepped(self, buffer: BufferOp) -> frozenset[str]:
        """Dims whose loops step through what a buffer holds."""
        within = (loop.dim.data for loop in self.loops[self.depth(buffer) :])
        return frozenset(within) & buffer.window.dims

    def kept(self, buffer: BufferOp, spans: Spans, starts: Sequence[Register]) -> Spans:
        """Return the spans that a buffer holds while the tile of ``spans`` is computed."""
        stepped = self.stepped(buffer)
        if not stepped:
            return spans
        depth = self.depth(buffer)
        pairs = list(zip(self.loops, starts, strict=True))[:depth]
        around = [(loop, at) for loop, at in pairs if loop.dim.data in stepped]
        start: dict[str, Value] = {**spans.start, **dict.fromkeys(stepped, 0)}
        size: dict[str, Value] = {**spans.size, **{dim: self.extents[dim] for dim in stepped}}
        for loop, at in around:
            dim = loop.dim.data
            start[dim], size[dim] = at, loop.step_size
            if self.extents[dim] % loop.step_size:
                left = self.e.subtract(self.extents[dim], at)
                size[dim] = self.e.minimum(left, loop.step_size)
        return Spans(start, size)

    def depth(self, buffer: BufferOp) -> int:
        """Return the number of loops around a buffer's transfer."""
        filled = [*self.nest.loads, *([self.nest.output] if self.nest.output else [])]
        return next(move.depth for move in filled if move.buffer is buffer)
