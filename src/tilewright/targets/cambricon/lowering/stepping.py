"""The step from one tile to the next: the odometer, the loads that run a tile ahead, registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.nest import Filled
from tilewright.targets.cambricon.lowering.streams import Agenda, Stream, Trail, Waiting
from tilewright.targets.cambricon.lowering.tiles import Fill, NewStream, Store, Tile
from tilewright.tile.dialect import BufferOp

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.walk import Walk

UNBEGUN = -2
"""The level before the first tile."""


class Stepping:
    """The state of a flat loop over tiles, and the code that steps to the next tile."""

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
        out = walk.nest.output
        assert out is not None
        self.output = out
        self.filled = {load.buffer: load.depth for load in walk.nest.loads}
        self.store_stream: Stream | None = None
        self.load_streams: dict[BufferOp, Stream] = {}
        self.shared = self._share(stream)
        # Weights first: their engine is idle while the kernel before stores its last tile.
        loads = sorted(walk.loads, key=lambda load: load.buffer.memory != "msm")
        self.ahead = [load for load in loads if load.depth == 0 or self._slots(load.buffer) > 1]
        self.behind = [load for load in loads if load not in self.ahead]
        self.weights_move = any(load.depth and load.buffer.memory == "msm" for load in loads)
        self.current: dict[BufferOp, Register] = {}
        self.coming: dict[BufferOp, int] = {}
        """Buffers that fill their other slot, and their depths."""
        for load in self.ahead:
            if load.depth and self._slots(load.buffer) > 1:
                self.current[load.buffer] = e.register()
                self.coming[load.buffer] = load.depth
        if self.shared is None and self._slots(out.buffer) > 1:
            self.current[out.buffer] = e.register()
            self.store_stream = stream(walk.operands[out.buffer])
        for buffer in self.coming:
            load_stream = None if buffer is self.shared else stream(walk.operands[buffer])
            if load_stream is not None:
                self.load_streams[buffer] = load_stream
        self.streams: list[Waiting] = [
            load_stream for key, load_stream in self.load_streams.items() if key is not self.shared
        ]
        self.trail = self.choose_trail()
        """The store of results that leave while their own tile is computed."""
        if self.store_stream is not None:
            # It starts first; results that leave behind their pixels may wait.
            at = 0 if self.trail is None and self.shared is None else len(self.streams)
            self.streams.insert(at, self.trail or self.store_stream)
        if self.shared is not None:
            # What is loaded where results were comes behind their store.
            self.streams.append(self.load_streams[self.shared])
        if self.streams:
            announced = self.trail is not None
            self.agenda = Agenda(
                e, self.streams, e.register(), walk.interval, walk.early(), announced=announced
            )
        self.ended = e.register()
        """Positive where no tile is left, and before the first one if some of it is there."""
        self.labels = [e.label("load") for _ in range(self.depth + 1)]
        self.loaded = e.label("loaded")

    def _share(self, stream: NewStream) -> BufferOp | None:
        """The buffer whose slots are the result's, too, if there is one; starts both streams.

        Results replace its elements, so that both have two slots in the room of one for each.
        """
        walk, buffer = self.walk, self.walk.in_turn()
        if buffer is None:
            return None
        store, load = (stream(walk.operands[key]) for key in (self.output.buffer, buffer))
        if store is None or load is None:
            return None
        self.store_stream, self.load_streams[buffer] = store, load
        return buffer

    def choose_trail(self) -> Trail | None:
        """Results leave pixel by pixel, if each is a transfer and no other tile computes them."""
        walk, stream = self.walk, self.store_stream
        if stream is None or self.shared is not None or self.output.depth < self.depth:
            return None
        steps = {loop.dim.data: loop.step_size for loop in walk.loops}
        sizes = [walk.extents.get(dim, 1) for dim in walk.pixels]
        pixels = prod(min(steps.get(d, n), n) for d, n in zip(walk.pixels, sizes, strict=True))
        if pixels == 1 or walk.pieces(walk.operands[self.output.buffer]) != pixels:
            return None
        return Trail(stream, lambda: self.store(self._now(), stream))

    def _slots(self, buffer: BufferOp) -> int:
        return 2 if buffer is self.shared else self.walk.operands[buffer].places

    def _base(self, buffer: BufferOp) -> Value:
        if self.shared is not None and buffer is self.output.buffer:
            buffer = self.shared
        return self.current.get(buffer, self.walk.operands[buffer].address)

    def _two(self, buffer: BufferOp) -> tuple[int, int]:
        """The addresses of its two slots, that of the first tile first."""
        operand, out = self.walk.operands[buffer], self.walk.operands[self.output.buffer]
        if buffer is self.shared and operand.slots == 1:
            other = out.address + out.slot_bytes if out.slots > 1 else operand.address
            return out.address, other
        return operand.first, 2 * operand.address + operand.slot_bytes - operand.first

    def _swap(self, register: Register, buffer: BufferOp) -> None:
        """The other slot's address."""
        with self.e.scope():
            both = self.e.loaded(sum(self._two(buffer)))
            self.e.emit("SSUB", register, both, register)

    def _loads(self, labels: Sequence[str]) -> None:
        """Loads that run one tile ahead."""
        e = self.e
        for depth, label in enumerate(labels):
            e.place(label)
            for there, loads in groupby(self._ahead_in(depth), self._is_begun):
                begun = e.label("begun")
                if there:
                    e.emit("CB", self.ended, begun)
                for load in loads:
                    self._load(load)
                if there:
                    e.place(begun)
            if any(load.depth == depth and load.buffer in self.load_streams for load in self.ahead):
                self.agenda.begin(self._pause())
            if not depth:
                self._renew_once()

    def _ahead_in(self, depth: int) -> list[Filled]:
        """Return the step's loads inside ``depth`` loops, without those that have already begun."""
        loads = [load for load in self.ahead if load.depth == depth]
        if depth:
            return loads
        return [load for load in loads if not self._is_begun(load)]

    def _is_begun(self, load: Filled) -> bool:
        return load.buffer in self.walk.begun

    def _load(self, load: Filled) -> None:
        """The load of the next tile's box, or the start of its stream."""
        e, buffer = self.e, load.buffer
        with e.scope():
            base = self._base(buffer)
            if buffer in self.coming:
                base = e.variable(base)
                self._swap(base, buffer)
            spans = e.settled(lambda: self.walk.spans(self.next, load.depth))
            stream = self.load_streams.get(buffer)
            self.fill(self.walk.operands[buffer], spans, base, stream)

    def _pause(self) -> int:
        """Cycles until the transfers are over that stand between two tiles."""
        walk = self.walk
        there = [load.buffer for load in self.behind if load.buffer.memory != "msm"]
        if self.store_stream is None and not walk.operands[self.output.buffer].stays:
            there.append(self.output.buffer)
        return max((walk.pause(walk.operands[buffer]) for buffer in there), default=0)

    def _advance(self, labels: Sequence[str], done: str) -> None:
        """Emit the step of the loop indices to the next tile, like an odometer."""
        e = self.e
        for number in range(self.depth - 1, -1, -1):
            at = self.next[number]
            e.emit("SADD", at, at, self.walk.loops[number].step_size)
            e.set(self.level, number)
            with e.scope():
                # The loads stand before: such branches are foreseen.
                e.if_less(at, self.walk.end(number, self.next), labels[number + 1])
            e.set(at, 0)
        e.set(self.level, -1)
        e.set(self.ended, 1)
        if self.weights_move:
            self.walk.passing(True)
        e.jump(done)

    def _renew_once(self) -> None:
        """For buffers that are filled once."""
        for buffer, renew in self.walk.renewals:
            if not self.filled[buffer]:
                with self.e.scope():
                    renew(self._now())

    def _now(self) -> Tile:
        """The tile that is computed."""
        e, walk = self.e, self.walk
        spans = e.settled(lambda: walk.spans(self.now))
        bases: dict[BufferOp, Value] = {}
        for buffer, operand in walk.operands.items():
            if operand.stays:
                bases[buffer] = e.settled(
                    lambda operand=operand: operand.lies(e, spans, walk.extents)
                )
            else:
                bases[buffer] = self._base(buffer)

        def kept(buffer: BufferOp) -> Spans:
            return spans if walk.operands[buffer].stays else walk.kept(buffer, spans, self.now)

        return Tile(spans, bases, kept)
