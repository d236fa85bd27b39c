"""The places of one kernel's weights in the matrix scratchpad, and their first loads."""

from __future__ import annotations

from tilewright.graph.placement import WEIGHTS
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.early import (
    FirstLoad,
    Gap,
    Interval,
    Need,
)
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.transfers import Transfers
from tilewright.tile.dialect import BufferOp
from tilewright.tile.implied import visits


class WeightPlaces(Transfers):
    """The state from which a kernel's weights are placed and loaded."""

    own: Temporaries
    """The end of the matrix scratchpad, which buffers leave to the primitive."""
    gap: Gap | None
    """Where a load for a later kernel may stand."""

    def _weights(self) -> list[BufferOp]:
        """The buffers in the matrix scratchpad that are loaded."""
        loads = (load.buffer for load in self.nest.loads)
        return [buffer for buffer in loads if buffer.memory == "msm" and buffer.stays is None]

    def _results(self) -> tuple[Interval, ...]:
        """The bytes of results in the matrix scratchpad, and of temporaries."""
        assert self.nest.output is not None
        buffer = self.nest.output.buffer
        results = (self._bytes_of(buffer),) if buffer.memory == "msm" else ()
        own = self.own
        return (*results, (own.start, own.start + own.used)) if own.used else results

    def _bytes_of(self, buffer: BufferOp) -> Interval:
        """All bytes of a buffer in the matrix scratchpad."""
        operand = self.operands[buffer]
        size = operand.bytes
        if buffer.tensor_op in self.bands:
            size = 2 * self.bands[buffer.tensor_op][1]
        return operand.address, operand.address + size

    def _last_of(self, buffer: BufferOp) -> Interval:
        """The bytes of it that the last tile uses."""
        operand = self.operands[buffer]
        if operand.places == 1 or self._uneven(buffer):
            return self._bytes_of(buffer)
        slot = (visits(buffer) - 1 + operand.later) % operand.places
        start = operand.address + slot * operand.slot_bytes
        return start, start + operand.slot_bytes

    def _uneven(self, buffer: BufferOp) -> bool:
        """Return True if the outer of two loops over a dim around it has a short last iteration."""
        loops = self.nest.loops[: self.walk.depth(buffer)]
        return any(
            loop.dim == other.dim and self.walk.extents[loop.dim.data] % loop.step_size > 0
            for number, loop in enumerate(loops)
            for other in loops[number + 1 :]
        )

    def _used(self, *, last: bool) -> tuple[Interval, ...]:
        """The bytes of the matrix scratchpad that all tiles use, or the last one."""
        slots = [self._last_of(b) if last else self._bytes_of(b) for b in self._weights()]
        return (*slots, *self._results())

    def _need(self) -> Need | None:
        """The only weights, if their first load is one transfer that stands before all."""
        if len(self._weights()) != 1:
            return None
        (buffer,) = self._weights()
        operand, tensor = self.operands[buffer], buffer.tensor_op
        if tensor in self.bands:
            address, size = self.bands[tensor]
            return Need(FirstLoad(0, size, address), 2 * size, 1)
        depth = next(load.depth for load in self.nest.loads if load.buffer is buffer)
        if (depth and operand.places == 1) or tensor.arena is None or tensor.arena.data != WEIGHTS:
            return None
        extents = self.program.extents
        steps = {loop.dim.data: loop.step_size for loop in self.nest.loops}
        first = {dim: min(steps.get(dim, extent), extent) for dim, extent in extents.items()}
        spans, e = Spans(dict.fromkeys(extents, 0), first), Emitter(self.e.where, "first")
        segments = self.segments.get(tensor)
        if segments is not None:
            count, address = segments.count(e, spans), segments.address(e, spans)
            address = e.add(address, self._start_of(operand))
        else:
            runs = self._runs(operand, spans)
            if any(number != 1 for number, _ in runs.loops):
                return None
            count, address = runs.elements, e.add(runs.address, runs.offset)
        assert isinstance(count, int) and isinstance(address, int)
        first = FirstLoad(0, count, address)
        if not depth:
            return Need(first, operand.slot_bytes, 1)
        tiles = visits(buffer)
        return Need(first, operand.bytes, operand.places, apart=operand.slot_bytes, tiles=tiles)

    def _load(self, load: FirstLoad) -> None:
        """A load of which all is known."""
        e = self.e
        with e.scope():
            e.remark("the rest of the first weights")
            count = e.loaded(load.elements)
            e.emit("MLOAD", e.loaded(load.chip), count, e.loaded(0), load.main)

    def _awaits_nothing(self) -> bool:
        """Return True if the image of the first tile was already loaded."""
        return any(self.operands[buffer].role == "input" for buffer in self.walk.begun)

    def _pass(self, last: bool) -> None:
        """Leave a gap for a load of a later kernel."""
        e = self.e
        with e.scope():
            registers = tuple(e.register() for _ in range(3))
            self.gap = Gap(
                e.mark("room for a load"),
                registers,
                self._used(last=last),
                not last and not self._awaits_nothing(),
            )
