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

The step itself is in stepping.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.targets.cambricon.lowering.nest import Filled
from tilewright.targets.cambricon.lowering.stepping import BEFORE_FIRST, Stepping
from tilewright.tile.dialect import BufferOp


class Flat(Stepping):
    """The flat loop being emitted."""

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
        for buffer in self.coming:
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
        for now, coming in zip(self.now, self.next, strict=True):
            e.set(now, coming)
        for buffer, depth in self.coming.items():

            def other(buffer: BufferOp = buffer) -> None:
                self._swap(self.current[buffer], buffer)

            self._where_advanced(depth, other)
        self._late_loads()
        self._refill()
        self._advance(self.labels, self.loaded)
        e.place(last)
        if self.store_stream is not None:
            self.store_stream.flush()

    def _begin(self, take: str) -> None:
        """Before the first tile, there is none to compute."""
        e, first = self.e, self.e.label("before_first")
        e.if_positive(e.subtract(BEFORE_FIRST + 1, self.level), first)

        def block() -> None:
            e.place(first)
            self._before_first(take)

        e.apart(block)

    def _before_first(self, take: str) -> None:
        """When the first tile's loads have been started."""
        self._pass_before()
        self.e.set(self.level, 0)
        if self.transfers.prefetched:
            self.e.set(self.ended, 0)
        self.e.jump(take)

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

    def _late_loads(self) -> None:
        """Loads into buffers of one slot: behind the tile that used them."""
        for load in self.behind:

            def fill(load: Filled = load) -> None:
                there = self.e.label("there")
                if load.buffer in self.transfers.prefetched:
                    self._where_first(load.depth, there)
                spans = self.nest.spans(self.now, load.depth)
                self.transfers.fill(load.buffer, spans, self.operands[load.buffer].address, None)
                self.e.place(there)

            # The level still is that of the step to this tile.
            self._where_advanced(load.depth, fill)

    def _where_first(self, depth: int, label: str) -> None:
        """Go there in the first round of so many loops."""
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
