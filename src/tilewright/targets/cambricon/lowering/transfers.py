"""The transfers of one kernel's operands: at once, or as streams that wait for issue slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tilewright.machine import Machine
from tilewright.targets.cambricon.lowering.boxes import Runs, Spans, runs_of, transfer
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.nest import Nest, Tile
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.split_load import SplitLoad, split_load_of
from tilewright.targets.cambricon.lowering.streams import (
    Stream,
    TransferScheduler,
    streamed,
)
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.weights import Segments, segments_of
from tilewright.targets.cambricon.machine import part_of
from tilewright.tile.dialect import BufferOp, TensorOp

Refill = Callable[[Tile], None]
"""Emits the code that prepares a buffer's contents for a tile."""

Reserve = Callable[[TensorOp, Segments], int]
"""Makes room in main memory for a copy of weights; its address."""

EARLY = 0.5
"""Part of the way between two issue slots by which a transfer may have to wait for the one before:
a little early does little harm, products still run."""


class Transfers:
    """The transfers of one kernel, and when they are issued."""

    def __init__(
        self, nest: Nest, machine: Machine, streams: Sequence[str], reserve: Reserve
    ) -> None:
        self.nest, self.machine, self.reserve = nest, machine, reserve
        self.streams = streams
        """Roles of the operands that move in streams."""
        self.e = nest.e
        self.segments: dict[TensorOp, Segments] = {}
        """The cuts of weights that are laid out by segment."""
        self.resident: dict[TensorOp, Segments] = {}
        """The cuts of weights that stay on the chip."""
        self.copies: dict[TensorOp, int] = {}
        """Addresses of segments that are copies, as other kernels read the original."""
        self.packed: dict[TensorOp, tuple[int, int]] = {}
        """Address and elements of weights that are copied for bands of pixels."""
        self.split_loads: dict[TensorOp, SplitLoad] = {}
        """Weights that come by both DMAs."""
        self.prefetched: set[BufferOp] = set()
        """Buffers whose first tile an earlier kernel has loaded."""
        self.refills: list[tuple[BufferOp, Refill]] = []
        """Code for buffers that have been filled anew, before their first tile."""
        self.interval: float | None = None
        """Cycles between issue slots, if tiles have them throughout: all moves wait for them."""
        self.replaced: BufferOp | None = None
        """A buffer whose elements results may replace, one for one."""
        self.scheduler: TransferScheduler | None = None
        """The issue slots of the loop over tiles, if it has streams."""
        self._cut_weights()

    def _cut_weights(self) -> None:
        """Find the weights that are laid out by segment."""
        nest, output = self.nest, self.nest.output.buffer
        for buffer, operand in nest.operands.items():
            if buffer.memory != "msm" and operand.role != "weight":
                continue
            segments = segments_of(buffer, nest.extents, nest.steps)
            if segments is None:
                continue
            if buffer.memory == "msm" and output.accumulates is None:
                step = part_of(self.machine, segments.co_step)
                segments = replace(segments, co_step=step)
            self.segments[buffer.tensor_op] = segments
            if operand.stays:
                self.resident[buffer.tensor_op] = operand.segments = segments

    # For primitives.

    def issue_slot(self, cycles: float | None = None) -> None:
        """A place in a tile's code where a stream may issue a transfer.

        It stands ``cycles`` cycles after the slot before; None: as many as other slots do.
        """
        if self.scheduler is not None:
            self.scheduler.issue_slot(cycles)

    def space_slots(self, interval: float) -> None:
        """Say that tiles have issue slots throughout, ``interval`` cycles apart."""
        self.interval = interval

    def on_refill(self, operand: Operand, refill: Refill) -> None:
        """Emit code whenever an operand's buffer has been filled anew."""
        self.refills.append((operand.buffer, refill))

    def replace_in_place(self, operand: Operand) -> None:
        """Say that results may be written where an operand of as many elements lies."""
        if not operand.stays:
            self.replaced = operand.buffer

    def by_segment(self, operand: Operand) -> bool:
        """Return True if weights are laid out by segment, for bands of pixels or not."""
        tensor = operand.buffer.tensor_op
        return tensor in self.segments or tensor in self.packed

    def pack_pixels(self, operand: Operand, pixels: int, stride: int) -> bool:
        """Copy weights for bands of pixels; False where they do not fit the matrix scratchpad."""
        tensor = operand.buffer.tensor_op
        cut = replace(self.segments[tensor], band=pixels, stride=stride)
        if 2 * cut.banded_size > (self.machine.memory("msm").room or 0):
            return False
        self.packed[tensor] = self.reserve(tensor, cut), cut.banded_size
        # It is larger than the buffer, and the only one in its scratchpad, filled once.
        operand.moved_to = 0
        del self.segments[tensor]
        return True

    def split_load(self, operand: Operand, busy: float, t: Temporaries) -> SplitLoad | None:
        """Let weights come by both DMAs: those that have two slots, and are others in each tile.

        A tile's products take ``busy`` cycles of the matrix unit.
        """
        tensor, loops, depth = operand.buffer.tensor_op, self.nest.loops, self._depth(operand)
        cut = self.segments.get(tensor)
        if cut is None or operand.slots < 2 or depth < len(loops):
            return None
        most = least = cut.width
        for dim in (cut.channel, "ci", "kh", "g"):
            extent = self.nest.extent(dim)
            step = next((loop.step_size for loop in loops if loop.dim.data == dim), extent)
            most, least = most * min(step, extent), least * (extent % step or step)
        cycles = 0.0
        for load in self.nest.loads:
            other = self.nest.operands[load.buffer]
            if load.depth == depth and load.buffer.memory == "vsm" and not other.stays:
                # The first one stands after the products.
                cycles += (self.pieces(other) - 1) * self._longest(other)
        split = split_load_of(self.e, self.machine, t, (least, most), busy, cycles)
        if split is not None:
            self.split_loads[tensor] = split
        return split

    # For the loops over tiles.

    def share(self, alone: Callable[[TensorOp], bool]) -> None:
        """Weights that other kernels load, too, are copied, once for each way in which they are
        cut: where they lie plainly, a tile would be a transfer for each of its rows."""
        for tensor in self.segments.keys() - self.resident.keys():
            if not alone(tensor):
                self.copies[tensor] = self.reserve(tensor, self.segments[tensor])

    def in_turn(self) -> BufferOp | None:
        """The buffer whose slots are the result's, too: where both have two slots in the room of
        one for each, if both move in streams."""
        out, buffer = self.nest.output, self.replaced
        if buffer is None or self.nest.depth(buffer) != out.depth or not out.depth:
            return None
        operand, result = self.nest.operands[buffer], self.nest.operands[out.buffer]
        if (
            result.stays
            or operand.slot_bytes != result.slot_bytes
            or min(operand.slots, result.slots) > 1
        ):
            return None
        return buffer

    def start_of(self, operand: Operand) -> int:
        """Return the address at which a tensor's segments begin in main memory."""
        return self.copies.get(operand.buffer.tensor_op, operand.place.address)

    def stream(self, buffer: BufferOp) -> Stream | None:
        """A stream for an operand, if it moves in one."""
        operand = self.nest.operands[buffer]
        if not self._streams(operand):
            return None
        text, pause = self._text(operand), self.pause(operand)
        runs = self._kind_of_runs(operand)
        return Stream(self.e, text, runs, operand.element, pause)

    def _depth(self, operand: Operand) -> int:
        return self.nest.depth(operand.buffer)

    def _streams(self, operand: Operand) -> bool:
        """Return True if an operand moves in a stream of runs between a tile's instructions."""
        if operand.role not in self.streams or operand.buffer.tensor_op in self.segments:
            return False
        if operand.role == "bias" and self._depth(operand) < len(self.nest.loops):
            # They change seldom, and are wanted soon then.
            return False
        return streamed(self._kind_of_runs(operand), single=self.interval is not None)

    def _kind_of_runs(self, operand: Operand) -> Runs:
        """The runs of an operand's boxes, as far as they are known of all."""
        # That does not depend on the registers that hold the rest.
        trial = Emitter(self.e.where, "trial")
        starts = [trial.register() for _ in self.nest.loops]
        return self.runs(
            operand, replace(self.nest, e=trial).spans(starts, self._depth(operand)), trial
        )

    def pause(self, operand: Operand) -> int:
        """Cycles from one transfer of an operand to the next; 0 where issue slots do not measure
        time."""
        if self.interval is None:
            return 0
        return max(int(self._longest(operand) - EARLY * self.interval), 0)

    def pieces(self, operand: Operand) -> int:
        """Transfers of an operand's largest box; one where the first box is padding alone."""
        trial = Emitter(self.e.where, "trial")
        runs = self.runs(operand, self.nest.first_spans(operand.buffer), trial)
        return max(prod(number for number, _ in runs.loops if isinstance(number, int)), 1)

    def _longest(self, operand: Operand) -> float:
        """Cycles of the longest transfer of an operand, about."""
        ends = (self.machine.main, operand.buffer.memory)
        if operand.buffer is self.nest.output.buffer:
            ends = ends[::-1]
        move = self.machine.move(*ends)
        size = operand.slot_bytes / self.pieces(operand)
        return move.latency + size / move.bytes_per_cycle

    def _text(self, operand: Operand) -> str:
        """The transfer of an operand."""
        letter = "M" if operand.buffer.memory == "msm" else "V"
        move = "STORE" if operand.buffer is self.nest.output.buffer else "LOAD"
        return f"{letter}{move}" + (".wide" if operand.element == 4 else "")

    def fill(self, buffer: BufferOp, spans: Spans, base: Value, stream: Stream | None) -> None:
        """Emit the load of an operand's box into the slot at an address, or start its stream."""
        e, operand, tensor = self.e, self.nest.operands[buffer], buffer.tensor_op
        e.remark(f"load {operand.name}")
        if tensor in self.packed:
            address, size = self.packed[tensor]
            e.emit("MLOAD", e.reg(base), e.reg(size), e.reg(0), address)
            return
        segments = self.segments.get(tensor)
        if segments is None:
            self._move(operand, self.runs(operand, spans), base, stream)
            return
        address = e.reg(segments.address(e, spans))
        count = e.reg(segments.count(e, spans))
        if (split := self.split_loads.get(tensor)) is not None:
            split.load(e, base, count, address, self.start_of(operand))
            return
        letter = "M" if buffer.memory == "msm" else "V"
        e.emit(f"{letter}LOAD", e.reg(base), count, address, self.start_of(operand))

    def store(self, tile: Tile, stream: Stream | None) -> None:
        """Emit the store of a tile's result, or start its stream."""
        e, buffer = self.e, self.nest.output.buffer
        operand = self.nest.operands[buffer]
        e.remark(f"store {operand.name}")
        runs = self.runs(operand, tile.buffered(buffer))
        self._move(operand, runs, tile.bases[buffer], stream)

    def _move(self, operand: Operand, runs: Runs, base: Value, stream: Stream | None) -> None:
        """All transfers of a box, or the start of its stream."""
        if stream is not None:
            stream.start(runs, base)
        else:
            transfer(self.e, self._text(operand), runs, base, operand.element)

    def runs(self, operand: Operand, spans: Spans, e: Emitter | None = None) -> Runs:
        """A box of an operand as runs of main memory."""
        e = e or self.e
        box = operand.box(e, spans, self.nest.extents)
        return runs_of(e, box, operand.place, operand.order)
