"""The loops over tiles: one flat loop that computes a tile while the next one's operands load.

Two iterations are merged (DLIR thesis, 5.2.6): the dims of the tile that is computed and those of
the next stand in registers side by side. Stepping to the next tile is an odometer: the innermost
dim advances, and where it is at its end it starts anew and the one around it advances. A buffer is
filled again when a loop around it has advanced, which the label says that the odometer jumps to:

    next tile's dims advance; loop j advanced: go to load_j+1
    load_0: ...                    loads of buffers outside of all loops
    load_1: ...                    loads of buffers within the outermost loop, and so on
    loads_done:
      compute the current tile
      store its result if the next tile begins another
      current tile's dims = the next one's; loads of buffers with one slot
      again

So a kernel holds its code once, whatever the sizes of its tiles are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.nest import Nest
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.streams import Stream
from tilewright.tile.dialect import BufferOp, LoopOp

Fill = Callable[[Operand, Spans, Value, Stream | None], None]
"""Emits the load of an operand's box into the slot at an address, or starts its stream."""


UNBEGUN = -2

NewStream = Callable[[Operand], Stream | None]


@dataclass(frozen=True)
class Tile:
    """The tile that is computed."""

    spans: Spans
    bases: dict[BufferOp, Value]
    """Addresses of the buffers' slots."""


Store = Callable[[Tile, Stream | None], None]
"""Emits the store of a tile's result, or starts its stream."""


class Walk:
    """The tile loops of one kernel."""

    flat: _Flat | None = None

    def hook(self) -> None:
        """A place in a tile's code where streams may move on."""
        if self.flat is not None and self.flat.streams:
            # One transfer at most: a second one would wait for the first, and all behind it.
            back = self.e.label("moved")
            for stream in self.flat.streams:
                stream.hook(back)
            self.e.place(back)

    def __init__(self, e: Emitter, nest: Nest, operands: dict[BufferOp, Operand]) -> None:
        self.e = e
        self.nest = nest
        self.operands = operands
        self.extents = nest.program.extents
        self.loops: Sequence[LoopOp] = nest.loops

    def emit(
        self, fill: Fill, compute: Callable[[Tile], None], store: Store, stream: NewStream
    ) -> None:
        """All tiles; ``stream`` makes streams for operands whose boxes have several runs."""
        if not self.loops:
            spans = self._spans([])
            bases: dict[BufferOp, Value] = {b: o.address for b, o in self.operands.items()}
            for one in sorted(self.nest.loads, key=lambda one: one.buffer.memory != "msm"):
                fill(self.operands[one.buffer], spans, bases[one.buffer], None)
            tile = Tile(spans, bases)
            compute(tile)
            store(tile, None)
            return
        self.flat = _Flat(self, fill, compute, store, stream)
        self.flat.emit()

    def _spans(self, starts: Sequence[Register]) -> Spans:
        return self.spans(starts)

    def spans(self, starts: Sequence[Register]) -> Spans:
        """The dims of a tile whose loops stand at ``starts``."""
        start: dict[str, Value] = dict.fromkeys(self.extents, 0)
        size: dict[str, Value] = dict(self.extents)
        for loop, at in zip(self.loops, starts, strict=True):
            dim = loop.dim.data
            extent, step = self.extents[dim], loop.step_size
            start[dim] = at
            size[dim] = step
            if extent % step:
                size[dim] = self.e.minimum(self.e.subtract(extent, at), step)
        return Spans(start, size)


class _Flat:
    """The flat loop being emitted."""

    def __init__(
        self,
        walk: Walk,
        fill: Fill,
        compute: Callable[[Tile], None],
        store: Store,
        stream: NewStream,
    ) -> None:
        self.walk, self.fill, self.compute, self.store = walk, fill, compute, store
        e = self.e = walk.e
        self.depth = len(walk.loops)
        self.now = [e.register() for _ in walk.loops]
        self.next = [e.register() for _ in walk.loops]
        self.level = e.register()
        """The outermost loop that advances from the current tile to the next; -1: none is left,
        ``UNBEGUN``: there is no current tile yet."""
        # Weights first: their engine is idle while the kernel before stores its last tile.
        loads = sorted(walk.nest.loads, key=lambda one: one.buffer.memory != "msm")
        self.ahead = [one for one in loads if one.depth == 0 or self._slots(one.buffer) > 1]
        self.behind = [one for one in loads if one not in self.ahead]
        self.current: dict[BufferOp, Register] = {}
        self.coming: dict[BufferOp, int] = {}
        """Buffers that fill their other slot, and their depths."""
        for one in self.ahead:
            if one.depth and self._slots(one.buffer) > 1:
                self.current[one.buffer] = e.register()
                self.coming[one.buffer] = one.depth
        out = walk.nest.output
        assert out is not None
        self.output = out
        self.store_stream: Stream | None = None
        if self._slots(out.buffer) > 1:
            self.current[out.buffer] = e.register()
            self.store_stream = stream(walk.operands[out.buffer])
        self.load_streams: dict[BufferOp, Stream] = {}
        for buffer in self.coming:
            found = stream(walk.operands[buffer])
            if found is not None:
                self.load_streams[buffer] = found
        self.streams = list(self.load_streams.values())
        if self.store_stream is not None:
            self.streams.append(self.store_stream)

    def _slots(self, buffer: BufferOp) -> int:
        return min(self.walk.operands[buffer].slots, 2)

    def _base(self, buffer: BufferOp) -> Value:
        return self.current.get(buffer, self.walk.operands[buffer].address)

    def _swap(self, register: Register, buffer: BufferOp) -> None:
        """The other slot's address."""
        one = self.walk.operands[buffer]
        with self.e.scope():
            both = self.e.loaded(2 * one.address + one.slot_bytes)
            self.e.emit("SSUB", register, both, register)

    def emit(self) -> None:
        """The loop."""
        e = self.e
        again, take = e.label("tile"), e.label("take")
        done, last = e.label("loaded"), e.label("last")
        labels = [e.label("load") for _ in range(self.depth + 1)]
        for one in (*self.now, *self.next):
            e.set(one, 0)
        for stream in self.streams:
            stream.reset()
        e.set(self.level, UNBEGUN)
        for buffer in self.coming:
            one = self.walk.operands[buffer]
            # The first load fills the other one: the first slot.
            e.set(self.current[buffer], one.address + one.slot_bytes)
        out = self.output.buffer
        if out in self.current:
            e.set(self.current[out], self.walk.operands[out].address)
        self._loads(labels)
        e.place(done)
        with e.scope():
            e.if_less(UNBEGUN, self.level, again)
        e.set(self.level, 0)
        e.jump(take)
        e.place(again)
        self._tile()
        with e.scope():
            # At the last tile the level is -1.
            e.if_less(self.level, 0, last)
        e.place(take)
        for stream in self.load_streams.values():
            stream.drain()
        for now, coming in zip(self.now, self.next, strict=True):
            e.set(now, coming)
        for buffer, depth in self.coming.items():
            kept = e.label("kept")
            if depth < self.depth:
                with e.scope():
                    e.if_positive(e.add(self.level, 1 - depth), kept)
            self._swap(self.current[buffer], buffer)
            e.place(kept)
        self._late_loads()
        self._advance(labels, done)
        e.place(last)
        if self.store_stream is not None:
            self.store_stream.drain()

    def _loads(self, labels: Sequence[str]) -> None:
        """Loads that run one tile ahead."""
        e = self.e
        for depth, label in enumerate(labels):
            e.place(label)
            for one in self.ahead:
                if one.depth != depth:
                    continue
                with e.scope():
                    base = self._base(one.buffer)
                    if one.buffer in self.coming:
                        base = e.variable(base)
                        self._swap(base, one.buffer)
                    spans = e.settled(lambda: self.walk.spans(self.next))
                    operand = self.walk.operands[one.buffer]
                    self.fill(operand, spans, base, self.load_streams.get(one.buffer))

    def _late_loads(self) -> None:
        """Loads into buffers of one slot: behind the tile that used them."""
        e = self.e
        for one in self.behind:
            with e.scope():
                skip = e.label("held")
                if one.depth < self.depth:
                    # The level still is that of the step to this tile.
                    e.if_positive(e.add(self.level, 1 - one.depth), skip)
                self.fill(
                    self.walk.operands[one.buffer],
                    self.walk.spans(self.now),
                    self.walk.operands[one.buffer].address,
                    None,
                )
                e.place(skip)

    def _advance(self, labels: Sequence[str], done: str) -> None:
        """The odometer."""
        e = self.e
        for number in range(self.depth - 1, -1, -1):
            loop = self.walk.loops[number]
            extent = self.walk.extents[loop.dim.data]
            at = self.next[number]
            more = e.label("more")
            e.emit("SADD", at, at, loop.step_size)
            e.if_less(at, extent, more)
            e.set(at, 0)
            over = e.label("over")
            e.jump(over)
            e.place(more)
            e.set(self.level, number)
            e.jump(labels[number + 1])
            e.place(over)
        e.set(self.level, -1)
        e.jump(done)

    def _tile(self) -> None:
        """Compute and store the current tile."""
        e = self.e
        bases: dict[BufferOp, Value] = {buffer: self._base(buffer) for buffer in self.walk.operands}
        with e.scope():
            tile = Tile(e.settled(lambda: self.walk.spans(self.now)), bases)
            self.compute(tile)
            keep = e.label("keep")
            if self.output.depth < self.depth:
                e.if_positive(e.add(self.level, 1 - self.output.depth), keep)
            if self.store_stream is not None:
                self.store_stream.drain()
            self.store(tile, self.store_stream)
            if self.output.buffer in self.current:
                self._swap(self.current[self.output.buffer], self.output.buffer)
            e.place(keep)
