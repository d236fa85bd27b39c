"""The places of one kernel's weights in the matrix scratchpad, and their first loads."""

from __future__ import annotations

from tilewright.graph.placement import WEIGHTS
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.nest import Nest
from tilewright.targets.cambricon.lowering.prefetch import (
    FirstLoad,
    Interval,
    PrefetchSlot,
    WeightRequest,
)
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.transfers import Transfers
from tilewright.tile.dependences import visits
from tilewright.tile.dialect import BufferOp


class WeightPlaces:
    """The bytes of the matrix scratchpad that one kernel uses, and its prefetch slot."""

    def __init__(self, nest: Nest, transfers: Transfers, temporaries: Temporaries) -> None:
        self.e, self.nest, self.transfers = nest.e, nest, transfers
        self.temporaries = temporaries
        """The end of the matrix scratchpad, which buffers leave to the primitive."""
        self.slot: PrefetchSlot | None = None
        """The place for a load for a later kernel."""

    def _results(self) -> tuple[Interval, ...]:
        """The bytes of results in the matrix scratchpad, and of temporaries."""
        buffer = self.nest.output.buffer
        results = (self._bytes_of(buffer),) if buffer.memory == "msm" else ()
        t = self.temporaries
        return (*results, (t.start, t.start + t.used)) if t.used else results

    def _bytes_of(self, buffer: BufferOp) -> Interval:
        """All bytes of a buffer in the matrix scratchpad."""
        operand = self.nest.operands[buffer]
        size = operand.bytes
        if buffer.tensor_op in self.transfers.packed:
            size = 2 * self.transfers.packed[buffer.tensor_op][1]
        return operand.address, operand.address + size

    def _last_of(self, buffer: BufferOp) -> Interval:
        """The bytes of it that the last tile uses."""
        operand = self.nest.operands[buffer]
        if operand.places == 1 or self._uneven(buffer):
            return self._bytes_of(buffer)
        slot = (visits(buffer) - 1 + operand.later) % operand.places
        start = operand.address + slot * operand.slot_bytes
        return start, start + operand.slot_bytes

    def _uneven(self, buffer: BufferOp) -> bool:
        """Return True if the outer of two loops over a dim around it has a short last iteration."""
        loops = self.nest.loops[: self.nest.depth(buffer)]
        return any(
            loop.dim == other.dim and self.nest.extents[loop.dim.data] % loop.step_size > 0
            for number, loop in enumerate(loops)
            for other in loops[number + 1 :]
        )

    def used(self, *, last: bool) -> tuple[Interval, ...]:
        """The bytes of the matrix scratchpad that all tiles use, or the last one."""
        slots = [self._last_of(b) if last else self._bytes_of(b) for b in self.nest.weights]
        return (*slots, *self._results())

    def request(self) -> WeightRequest | None:
        """The only weights, if their first load is one transfer that stands before all."""
        if len(self.nest.weights) != 1:
            return None
        (buffer,) = self.nest.weights
        operand, tensor = self.nest.operands[buffer], buffer.tensor_op
        if tensor in self.transfers.packed:
            address, size = self.transfers.packed[tensor]
            return WeightRequest(FirstLoad(0, size, address), 2 * size)
        depth = self.nest.depth(buffer)
        if (depth and operand.places == 1) or tensor.arena is None or tensor.arena.data != WEIGHTS:
            return None
        spans, e = self.nest.first_spans(), Emitter(self.e.where, "first")
        segments = self.transfers.segments.get(tensor)
        if segments is not None:
            count, address = segments.count(e, spans), segments.address(e, spans)
            address = e.add(address, self.transfers.start_of(operand))
        else:
            runs = self.transfers.runs(operand, spans)
            if any(number != 1 for number, _ in runs.loops):
                return None
            count, address = runs.elements, e.add(runs.address, runs.offset)
        assert isinstance(count, int) and isinstance(address, int)
        first = FirstLoad(0, count, address)
        if not depth:
            return WeightRequest(first, operand.slot_bytes)
        return WeightRequest(first, operand.bytes, operand.slot_bytes, visits(buffer))

    def leave_slot(self, last: bool) -> None:
        """Leave a prefetch slot for a later kernel's load; where ``last``, before the last tile."""
        e = self.e
        registers = tuple(e.register() for _ in range(3))
        busy = self.used(last=last)
        self.slot = PrefetchSlot(e.mark("room for a load"), registers, busy, not last)
