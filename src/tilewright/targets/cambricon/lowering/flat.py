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
from itertools import groupby

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.nest import Filled, Nest, Tile
from tilewright.targets.cambricon.lowering.streams import Stream, TransferScheduler
from tilewright.targets.cambricon.lowering.transfers import Transfers
from tilewright.tile.dialect import BufferOp

PassedOnce = Callable[[bool], None]
"""Is called where the code passes once, after all loads of weights: before the first tile, or
(True) before the last one, or the last ones if those stay in the scratchpad."""

BEFORE_FIRST = -2
"""The level before the first tile."""


class Flat:
    """The flat loop over tiles that is being emitted."""

    def __init__(
        self,
        nest: Nest,
        transfers: Transfers,
        compute: Callable[[Tile], None],
        passed_once: PassedOnce,
    ) -> None:
        self.nest, self.transfers, self.operands = nest, transfers, nest.operands
        self.compute, self.passed_once = compute, passed_once
        e = self.e = nest.e
        self.depth = len(nest.loops)
        self.now = [e.register() for _ in nest.loops]
        self.next = [e.register() for _ in nest.loops]
        self.level = e.register()
        """The outermost loop that advances from the current tile to the next; -1: none is left,
        ``BEFORE_FIRST``: there is no current tile yet."""
        out = self.output = nest.output
        self.filled = {load.buffer: load.depth for load in nest.loads}
        self.store_stream: Stream | None = None
        self.load_streams: dict[BufferOp, Stream] = {}
        self.shared = self._share()
        loads = loads_of(nest)
        self.ahead = [load for load in loads if load.depth == 0 or self._slots(load.buffer) > 1]
        self.deferred = [load for load in loads if load not in self.ahead]
        self.weights_move = any(load.depth and load.buffer.memory == "msm" for load in loads)
        self.current: dict[BufferOp, Register] = {}
        self.next_depths: dict[BufferOp, int] = {}
        """Buffers that fill their other slot, and their depths."""
        for load in self.ahead:
            if load.depth and self._slots(load.buffer) > 1:
                self.current[load.buffer] = e.register()
                self.next_depths[load.buffer] = load.depth
        if self.shared is None and self._slots(out.buffer) > 1:
            self.current[out.buffer] = e.register()
            self.store_stream = transfers.stream(out.buffer)
        for buffer in self.next_depths:
            load_stream = None if buffer is self.shared else transfers.stream(buffer)
            if load_stream is not None:
                self.load_streams[buffer] = load_stream
        self.streams: list[Stream] = [
            load_stream for key, load_stream in self.load_streams.items() if key is not self.shared
        ]
        if self.store_stream is not None:
            # It starts first; what replaces results may come soon.
            at = 0 if self.shared is None else len(self.streams)
            self.streams.insert(at, self.store_stream)
        if self.shared is not None:
            # What is loaded where results were comes after their store.
            self.streams.append(self.load_streams[self.shared])
        if self.streams:
            self.scheduler = transfers.scheduler = TransferScheduler(
                e, self.streams, e.register(), transfers.interval
            )
        self.ended = e.register()
        """Positive where no tile is left, and before the first one if some of it is there."""
        self.labels = [e.label("load") for _ in range(self.depth + 1)]
        self.loaded = e.label("loaded")

    def _share(self) -> BufferOp | None:
        """The buffer whose slots are the result's, too, if there is one; starts both streams.

        Results replace its elements, so that both have two slots in the room of one for each.
        """
        buffer = self.transfers.in_turn()
        if buffer is None:
            return None
        store, load = map(self.transfers.stream, (self.output.buffer, buffer))
        if store is None or load is None:
            return None
        self.store_stream, self.load_streams[buffer] = store, load
        return buffer

    def _slots(self, buffer: BufferOp) -> int:
        return 2 if buffer is self.shared else self.operands[buffer].places

    def _base(self, buffer: BufferOp) -> Value:
        if self.shared is not None and buffer is self.output.buffer:
            buffer = self.shared
        return self.current.get(buffer, self.operands[buffer].address)

    def _two(self, buffer: BufferOp) -> tuple[int, int]:
        """The addresses of its two slots, that of the first tile first."""
        operand, out = self.operands[buffer], self.operands[self.output.buffer]
        if buffer is self.shared and operand.slots == 1:
            other = out.address + out.slot_bytes if out.slots > 1 else operand.address
            return out.address, other
        return operand.first, 2 * operand.address + operand.slot_bytes - operand.first

    def _swap(self, register: Register, buffer: BufferOp) -> None:
        """The other slot's address."""
        both = self.e.reg(sum(self._two(buffer)))
        self.e.emit("SSUB", register, both, register)

    def emit(self) -> None:
        """Emit the flat loop over all tiles."""
        e = self.e
        again, take, last = e.label("tile"), e.label("take"), e.label("last")
        for register in (*self.now, *self.next):
            e.set(register, 0)
        if self.streams:
            self.scheduler.reset()
        e.set(self.level, BEFORE_FIRST)
        e.set(self.ended, int(len(self.transfers.prefetched) > 0))
        for buffer in self.next_depths:
            # The first load fills the other one.
            e.set(self.current[buffer], self._two(buffer)[1])
        out = self.output.buffer
        if out in self.current:
            e.set(self.current[out], self.operands[out].address)
        self._loads(self.labels)
        e.place(self.loaded)
        self._begin(take)
        e.place(again)
        self._tile()
        e.if_positive(self.ended, last)
        e.place(take)
        for stream in self.load_streams.values():
            stream.flush()
        for now, following in zip(self.now, self.next, strict=True):
            e.set(now, following)
        for buffer, depth in self.next_depths.items():

            def other(buffer: BufferOp = buffer) -> None:
                self._swap(self.current[buffer], buffer)

            self._where_advanced(depth, other)
        self._deferred_loads()
        self._refill()
        self._advance(self.labels, self.loaded)
        e.place(last)
        if self.store_stream is not None:
            self.store_stream.flush()

    def _begin(self, take: str) -> None:
        """Before the first tile, there is no tile to compute."""
        e, first = self.e, self.e.label("before_first")
        e.if_positive(e.subtract(BEFORE_FIRST + 1, self.level), first)
        with e.outlined():
            e.place(first)
            self._pass_before()
            e.set(self.level, 0)
            if self.transfers.prefetched:
                e.set(self.ended, 0)
            e.jump(take)

    def _pass_before(self) -> None:
        """Before the first tile, loads of other kernels may follow those of the tile's operands.

        Beside these they would take half of the bandwidth, and the first product waits.
        """
        if self.weights_move:
            return
        for stream in self.load_streams.values():
            stream.flush()
        self.passed_once(False)

    def _refill(self) -> None:
        """For buffers that the step to this tile has filled: the level still is that step's."""
        for buffer, refill in self.transfers.refills:
            depth = self.filled[buffer]
            if not depth:
                continue
            self._where_advanced(depth, lambda refill=refill: refill(self._now()))

    def _deferred_loads(self) -> None:
        """Loads into buffers of one slot: after the tile that used them."""
        for load in self.deferred:

            def fill(load: Filled = load) -> None:
                arrived = self.e.label("there")
                if load.buffer in self.transfers.prefetched:
                    self._where_first(load.depth, arrived)
                spans = self.nest.spans(self.now, load.depth)
                self.transfers.fill(load.buffer, spans, self.operands[load.buffer].address, None)
                if self.weights_move and load.buffer.memory != "msm":
                    # Weights of the next tile would take half of the bandwidth.
                    nothing = self.e.reg(0)
                    self.e.emit("MLOAD.barrier", nothing, nothing, nothing, 0)
                self.e.place(arrived)

            # The level still is that of the step to this tile.
            self._where_advanced(load.depth, fill)

    def _where_first(self, depth: int, label: str) -> None:
        """Branch to ``label`` in the first iteration of the ``depth`` outermost loops."""
        e, total = self.e, self.now[0]
        for at in self.now[1:depth]:
            total = e.add(total, at)
        e.if_positive(e.subtract(1, total), label)

    def _where_advanced(self, depth: int, block: Callable[[], None]) -> None:
        """A block for steps that have advanced one of the first ``depth`` loops, mostly few."""
        e = self.e
        if depth == self.depth:
            block()
            return
        advanced = e.register()
        if depth == 1:
            e.emit("SE", advanced, self.level, 0)
        else:
            e.emit("SMOVE", advanced, depth)
            e.emit("SSUB", advanced, advanced, self.level)
        e.aside(advanced, block)

    def _tile(self) -> None:
        """Compute and store the current tile."""
        e = self.e
        tile = self._now()
        self.compute(tile)
        if self.operands[self.output.buffer].stays:
            return
        keep = e.label("keep")
        if self.output.depth < self.depth:
            e.if_positive(e.add(self.level, 1 - self.output.depth), keep)
        if self.store_stream is not None:
            self.store_stream.flush()
        self.transfers.store(tile, self.store_stream)
        if self.store_stream is not None:
            self.scheduler.begin()
        if self.output.buffer in self.current:
            self._swap(self.current[self.output.buffer], self.output.buffer)
        e.place(keep)

    def _loads(self, labels: Sequence[str]) -> None:
        """Loads that run one tile ahead."""
        e = self.e
        for depth, label in enumerate(labels):
            e.place(label)
            for prefetched, loads in groupby(self._ahead_in(depth), self._is_prefetched):
                passed = e.label("prefetched")
                if prefetched:
                    e.emit("CB", self.ended, passed)
                for load in loads:
                    self._load(load)
                if prefetched:
                    e.place(passed)
            if any(load.depth == depth and load.buffer in self.load_streams for load in self.ahead):
                self.scheduler.begin()
            if not depth:
                self._refill_once()

    def _ahead_in(self, depth: int) -> list[Filled]:
        """Return the step's loads inside ``depth`` loops, without those that were prefetched."""
        loads = [load for load in self.ahead if load.depth == depth]
        if depth:
            return loads
        return [load for load in loads if not self._is_prefetched(load)]

    def _is_prefetched(self, load: Filled) -> bool:
        return load.buffer in self.transfers.prefetched

    def _load(self, load: Filled) -> None:
        """The load of the next tile's box, or the start of its stream."""
        e, buffer = self.e, load.buffer
        base = self._base(buffer)
        if buffer in self.next_depths:
            base = e.variable(base)
            self._swap(base, buffer)
        spans = self.nest.spans(self.next, load.depth)
        self.transfers.fill(buffer, spans, base, self.load_streams.get(buffer))

    def _advance(self, labels: Sequence[str], done: str) -> None:
        """Emit the step of the loop indices to the next tile, like an odometer."""
        e = self.e
        for number in range(self.depth - 1, -1, -1):
            at = self.next[number]
            e.emit("SADD", at, at, self.nest.loops[number].step_size)
            e.set(self.level, number)
            # The loads stand before: such branches are foreseen.
            e.if_less(at, self.nest.end(number, self.next), labels[number + 1])
            e.set(at, 0)
        e.set(self.level, -1)
        e.set(self.ended, 1)
        if self.weights_move:
            self.passed_once(True)
        e.jump(done)

    def _refill_once(self) -> None:
        """For buffers that are filled once."""
        for buffer, refill in self.transfers.refills:
            if not self.filled[buffer]:
                refill(self._now())

    def _now(self) -> Tile:
        """The tile that is computed."""
        return self.nest.tile(self.now, self._base)


def loads_of(nest: Nest) -> list[Filled]:
    """The loads of a kernel, weights first: their engine is idle while the kernel before stores its
    last tile."""
    loads = [load for load in nest.loads if not nest.operands[load.buffer].stays]
    return sorted(loads, key=lambda load: load.buffer.memory != "msm")


def emit_tiles(
    nest: Nest, transfers: Transfers, compute: Callable[[Tile], None], passed_once: PassedOnce
) -> None:
    """All tiles of a kernel, with their transfers."""
    if nest.loops:
        Flat(nest, transfers, compute, passed_once).emit()
        return
    tile = nest.tile([], lambda buffer: nest.operands[buffer].address)
    for load in loads_of(nest):
        if load.buffer not in transfers.prefetched:
            transfers.fill(load.buffer, tile.spans, tile.bases[load.buffer], None)
    for _, refill in transfers.refills:
        refill(tile)
    # A load that waits for the one before would hold up what the tile needs.
    passed_once(False)
    compute(tile)
    if not nest.operands[nest.output.buffer].stays:
        transfers.store(tile, None)
