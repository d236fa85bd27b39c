"""The moves of one kernel's operands: at once, or as streams that wait for hooks."""

from __future__ import annotations

from math import prod

from tilewright.machine import Machine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.bridge import Bridge, bridge_of
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.moves import Runs, runs_of, transfer
from tilewright.targets.cambricon.lowering.nest import Nest
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.streams import (
    EARLY,
    SCARCE,
    Stream,
    pause_of,
    streamed,
)
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.tiles import Tile
from tilewright.targets.cambricon.lowering.walk import Walk
from tilewright.targets.cambricon.lowering.weights import Segments
from tilewright.tile.dialect import BufferOp, ProgramOp, TensorOp


class Transfers:
    """The state from which a kernel's transfers are lowered."""

    e: Emitter
    program: ProgramOp
    machine: Machine
    nest: Nest
    walk: Walk
    operands: dict[BufferOp, Operand]
    streams: tuple[str, ...]
    """Roles of the operands that move in streams."""
    spare: Register | None
    """The register that all streams share, once there is one."""
    segments: dict[TensorOp, Segments]
    copies: dict[TensorOp, int]
    """Addresses of segments that are copies, as other kernels read the original."""
    bridges: dict[TensorOp, Bridge]
    """Weights that come by both DMAs."""
    bands: dict[TensorOp, tuple[int, int]]
    """Address and elements of weights that are copied for bands of pixels."""

    def _bridge(self, operand: Operand, busy: float, t: Temporaries) -> Bridge | None:
        """Let weights come by both DMAs: those that have two slots, and are others in each tile.

        A tile's products take so many cycles of the matrix unit.
        """
        tensor, loops = operand.buffer.tensor_op, self.nest.loops
        depth = next(load.depth for load in self.nest.loads if load.buffer is operand.buffer)
        cut = self.segments.get(tensor)
        if cut is None or operand.slots < 2 or depth < len(loops):
            return None
        extents = self.program.extents
        most = least = cut.width
        for dim in (cut.channel, "ci", "kh", "g"):
            extent = extents.get(dim, 1)
            step = next((loop.step_size for loop in loops if loop.dim.data == dim), extent)
            most, least = most * min(step, extent), least * (extent % step or step)
        cycles = 0.0
        for load in self.nest.loads:
            other = self.operands[load.buffer]
            if load.depth == depth and load.buffer.memory == "vsm" and not other.stays:
                # The first one stands behind the products.
                cycles += (self._pieces(other) - 1) * self._longest(other)
        bridge = bridge_of(self.e, self.machine, t, (least, most), busy, cycles)
        if bridge is not None:
            self.bridges[tensor] = bridge
        return bridge

    def _start_of(self, operand: Operand) -> int:
        """Return the address at which a tensor's segments begin in main memory."""
        return self.copies.get(operand.buffer.tensor_op, operand.place.address)

    def _stream(self, operand: Operand) -> Stream | None:
        """A stream for an operand, if it moves in one."""
        if not self._streams(operand):
            return None
        if self.spare is None:
            self.spare = self.e.register()
        text, pause = self._text(operand), self._pause(operand)
        runs = self._kind_of_runs(operand)
        return Stream(self.e, text, runs, operand.element, self.spare, pause)

    def _streams(self, operand: Operand) -> bool:
        """Return True if an operand moves in a stream of runs between a tile's instructions."""
        if operand.role not in self.streams or operand.buffer.tensor_op in self.segments:
            return False
        interval, depth = self.walk.interval, self.walk.depth(operand.buffer)
        if operand.role == "bias" and depth < len(self.nest.loops):
            # They change seldom, and are wanted soon then.
            return False
        if operand.role == "bias" and self.is_crowded():
            # The last of them would wait for the end of the tile, and the next tile for that.
            return False
        return streamed(self._kind_of_runs(operand), single=interval is not None)

    def _kind_of_runs(self, operand: Operand) -> Runs:
        """The runs of an operand's boxes, as far as they are known of all."""
        # That does not depend on the registers that hold the rest.
        trial = Emitter(self.e.where, "trial")
        starts = [trial.register() for _ in self.nest.loops]
        spans = Walk(trial, self.nest, {}).spans(starts, self.walk.depth(operand.buffer))
        box = operand.box(trial, spans, self.program.extents)
        return runs_of(trial, box, operand.place, operand.order)

    def is_crowded(self) -> bool:
        """Return True if a tile has more transfers than its hooks have room for."""
        places = self.walk.places
        return places is not None and self._hooks(EARLY) > places

    def earliness(self) -> float:
        """Part of an interval by which a transfer may have to wait for the one before: none where
        tiles are known to have hooks to spare."""
        places = self.walk.places
        return EARLY if places is None or self._hooks(0.0) > SCARCE * places else 0.0

    def _hooks(self, early: float) -> int:
        """Hooks that the transfers of each tile wait for, if one may be so early."""
        interval, depth, hooks = self.walk.interval, len(self.nest.loops), 0
        for move in (*self.nest.loads, self.nest.output):
            if (
                interval is None
                or move is None
                or move.depth < depth
                or move.buffer.memory == "msm"
            ):
                continue
            operand = self.operands[move.buffer]
            if not operand.stays:
                cycles = pause_of(self._took(operand), interval, early)
                hooks += self._pieces(operand) * (cycles // max(round(interval), 1) + 1)
        return hooks

    def _pause(self, operand: Operand) -> int:
        """Cycles from one transfer of an operand to the next; 0 where hooks do not measure time."""
        interval = self.walk.interval
        return 0 if interval is None else pause_of(self._took(operand), interval, self.earliness())

    def _took(self, operand: Operand) -> float:
        """Cycles of a transfer of an operand, about."""
        # Weights that come in each tile take half of the bandwidth. Several transfers of a tile
        # may have no time to wait for that.
        depth = max(1, len(self.nest.loops))
        weights = any(o.depth == depth and o.buffer.memory == "msm" for o in self.nest.loads)
        shared = weights and self._pieces(operand) == 1
        return self._longest(operand, shared=shared)

    def _pieces(self, operand: Operand) -> int:
        """Transfers of an operand's largest box; one where the first box is padding alone."""
        e, extents = Emitter(self.e.where, "trial"), self.program.extents
        around = self.nest.loops[: self.walk.depth(operand.buffer)]
        steps = {loop.dim.data: loop.step_size for loop in around}
        first = {dim: min(steps.get(dim, extent), extent) for dim, extent in extents.items()}
        runs = self._runs(operand, Spans(dict.fromkeys(extents, 0), first), e)
        return max(prod(number for number, _ in runs.loops if isinstance(number, int)), 1)

    def _longest(self, operand: Operand, *, shared: bool = False) -> float:
        """Cycles of the longest transfer of an operand, about; beside another one if ``shared``."""
        memory = operand.buffer.memory
        output = self.nest.output is not None and operand.buffer is self.nest.output.buffer
        ends = (memory, self.machine.main) if output else (self.machine.main, memory)
        move = self.machine.move(*ends)
        size = operand.slot_bytes / self._pieces(operand)
        return move.latency + (1 + shared) * size / move.bytes_per_cycle

    def _text(self, operand: Operand) -> str:
        """The transfer of an operand."""
        output = self.nest.output
        assert output is not None
        letter = "M" if operand.buffer.memory == "msm" else "V"
        move = "STORE" if operand.buffer is output.buffer else "LOAD"
        return f"{letter}{move}" + (".wide" if operand.element == 4 else "")

    def _fill(
        self,
        operand: Operand,
        spans: Spans,
        base: Value,
        stream: Stream | None,
    ) -> None:
        e = self.e
        e.remark(f"load {operand.name}")
        if operand.buffer.tensor_op in self.bands:
            address, size = self.bands[operand.buffer.tensor_op]
            e.emit("MLOAD", e.loaded(base), e.loaded(size), e.loaded(0), address)
            return
        segments = self.segments.get(operand.buffer.tensor_op)
        if segments is not None:
            address = e.loaded(segments.address(e, spans))
            count = e.loaded(segments.count(e, spans))
            if (bridge := self.bridges.get(operand.buffer.tensor_op)) is not None:
                bridge.load(e, base, count, address, self._start_of(operand))
                return
            letter = "M" if operand.buffer.memory == "msm" else "V"
            e.emit(f"{letter}LOAD", e.loaded(base), count, address, self._start_of(operand))
            return
        runs = e.settled(lambda: self._runs(operand, spans))
        if stream is not None:
            stream.start(runs, base)
        else:
            transfer(e, self._text(operand), runs, base, operand.element)

    def _runs(self, operand: Operand, spans: Spans, e: Emitter | None = None) -> Runs:
        e = e or self.e
        box = operand.box(e, spans, self.program.extents)
        return runs_of(e, box, operand.place, operand.order)

    def _store(self, tile: Tile, stream: Stream | None) -> None:
        e = self.e
        assert self.nest.output is not None
        operand = self.operands[self.nest.output.buffer]
        with e.scope():
            e.remark(f"store {operand.name}")
            runs = e.settled(lambda: self._runs(operand, tile.kept(operand.buffer)))
            base = tile.bases[operand.buffer]
            if stream is not None:
                stream.start(runs, base)
            else:
                transfer(e, self._text(operand), runs, base, operand.element)
