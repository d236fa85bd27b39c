"""One kernel: its tile program becomes statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.moves import Runs, runs_of, transfer
from tilewright.targets.cambricon.lowering.nest import Nest, nest_of
from tilewright.targets.cambricon.lowering.normalise import Lrn, Softmax
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.points import Points
from tilewright.targets.cambricon.lowering.pooling import Pool
from tilewright.targets.cambricon.lowering.product import Product
from tilewright.targets.cambricon.lowering.streams import Stream, streamed
from tilewright.targets.cambricon.lowering.temporaries import Temporaries
from tilewright.targets.cambricon.lowering.walk import Tile, Walk
from tilewright.targets.cambricon.lowering.weights import Segments, segments_of
from tilewright.targets.cambricon.statements import Statement
from tilewright.tile.dialect import ProgramOp, TensorOp

Reserve = Callable[[TensorOp, Segments], int]
"""Makes room in main memory for a copy of weights; its address."""

Tables = Callable[[bytes], int]
"""Puts 16-bit elements into main memory, each content once; their address."""


class Compute(Protocol):
    """The code of one kind of anchor."""

    def prologue(self) -> None:
        """What stands before all tiles."""
        ...

    def emit(self, tile: Tile) -> None:
        """One tile."""
        ...


COMPUTES: Mapping[str, Callable[[Context], Compute]] = {
    "conv": Product,
    "matmul": Product,
    "max_pool": Pool,
    "average_pool": Pool,
    "lrn": Lrn,
    "softmax": Softmax,
}
"""By the anchor's operation; all others are maps."""

MAX_TABLES = 15
"""Tables that a kernel may use."""


@dataclass(frozen=True)
class Lowered:
    """A kernel's statements, and the weights that they take in segments."""

    statements: list[Statement]
    segments: dict[TensorOp, Segments]


THRIFT = (
    (("input", "output", "residual", "weight"), 12),
    (("input", "output", "residual", "weight"), 2),
    (("input", "output"), 4),
    (("output",), 2),
    ((), 4),
    ((), 0),
)
"""Ways to spend registers, best first: which operands move in streams, and how many constants."""


def lower_kernel(
    program: ProgramOp,
    machine: Machine,
    bases: Mapping[str, int],
    image: Tables,
    alone: Callable[[TensorOp], bool],
    reserve: Reserve,
) -> Lowered:
    """A kernel's statements; ``alone`` says of weights whether no other kernel reads them.

    Raises TilewrightError.
    """
    failure: TilewrightError | None = None
    for streams, constants in THRIFT:
        lowering = KernelLowering(program, machine, bases, image, reserve, streams, constants)
        lowering.segments = {t: s for t, s in lowering.segments.items() if alone(t)}
        try:
            return lowering.lower()
        except TilewrightError as error:
            if error.problems[0].code != "lower-registers":
                raise
            failure = failure or error
    assert failure is not None
    raise failure


class KernelLowering:
    """One kernel being lowered."""

    def __init__(
        self,
        program: ProgramOp,
        machine: Machine,
        bases: Mapping[str, int],
        image: Tables,
        reserve: Reserve,
        streams: tuple[str, ...],
        constants: int,
    ) -> None:
        self.streams = streams
        self.spare: Register | None = None
        self.program = program
        self.machine = machine
        self.bases = bases
        self.image = image
        self.reserve = reserve
        self.e = Emitter(program.symbol.data, program.symbol.data, constants)
        self.nest: Nest = nest_of(program)
        self.tables: list[bytes] = []
        buffers = [*(one.buffer for one in self.nest.loads)]
        assert self.nest.output is not None
        buffers.append(self.nest.output.buffer)
        self.operands = {buffer: Operand(buffer, machine, bases) for buffer in buffers}
        self.segments: dict[TensorOp, Segments] = {}
        self.bands: dict[TensorOp, tuple[int, int]] = {}
        """Address and elements of weights that are copied for bands of pixels."""
        for buffer in buffers:
            if buffer.memory == "msm":
                found = segments_of(self.nest, buffer)
                if found is not None:
                    self.segments[buffer.tensor_op] = found

    def lower(self) -> Lowered:
        """All statements of the kernel."""
        e, machine = self.e, self.machine
        assert self.nest.compute is not None
        vsm = machine.memory("vsm")
        walk = Walk(e, self.nest, self.operands)
        context = Context(
            e,
            self.program,
            self.nest.compute,
            machine,
            self.operands,
            {loop.dim.data: loop.step_size for loop in self.nest.loops},
            Temporaries(vsm.room or 0, vsm.reserved, self.program.symbol.data),
            self._table,
            frozenset(self.segments),
            walk.hook,
            self._widen,
        )
        kind = COMPUTES.get(context.anchor.operation.data, Points)
        compute = kind(context)
        for number, data in enumerate(self.tables, 1):
            with e.scope():
                zero, size = e.loaded(0), e.loaded(len(data) // 2)
                e.emit(f"VLOAD.table={number}", zero, size, zero, self.image(data))
        compute.prologue()
        walk.emit(self._fill, compute.emit, self._store, self._stream)
        e.finish()
        return Lowered(e.statements, self.segments)

    def _widen(self, tensor: TensorOp, band: int, stride: int) -> bool:
        """Copy weights for bands of pixels; False where they do not fit the matrix scratchpad."""
        cut = replace(self.segments[tensor], band=band, stride=stride)
        if 2 * cut.banded_size > (self.machine.memory("msm").room or 0):
            return False
        self.bands[tensor] = self.reserve(tensor, cut), cut.banded_size
        del self.segments[tensor]
        return True

    def _table(self, data: bytes) -> int:
        if data not in self.tables:
            self.tables.append(data)
        if len(self.tables) > MAX_TABLES:
            raise refuse("lower-tables", f"needs more than {MAX_TABLES} tables", self.e.where)
        return self.tables.index(data) + 1

    def _stream(self, operand: Operand) -> Stream | None:
        """A stream for an operand whose boxes have several runs."""
        if operand.role not in self.streams or operand.buffer.tensor_op in self.segments:
            return None
        # What is known of a box does not depend on the registers that hold the rest.
        trial = Emitter(self.e.where, "trial")
        spans = Walk(trial, self.nest, {}).spans([trial.register() for _ in self.nest.loops])
        box = operand.box(trial, spans, self.program.extents)
        runs = runs_of(trial, box, operand.place, operand.order)
        if not streamed(runs):
            return None
        if self.spare is None:
            self.spare = self.e.register()
        return Stream(self.e, self._text(operand), runs, operand.element, self.spare)

    def _text(self, operand: Operand) -> str:
        """The transfer of an operand."""
        output = self.nest.output
        assert output is not None
        letter = "M" if operand.buffer.memory == "msm" else "V"
        move = "STORE" if operand.buffer is output.buffer else "LOAD"
        return f"{letter}{move}" + (".wide" if operand.element == 4 else "")

    def _fill(self, operand: Operand, spans: Spans, base: Value, stream: Stream | None) -> None:
        e = self.e
        e.remark(f"load {operand.name}")
        if operand.buffer.tensor_op in self.bands:
            # The only buffer in its scratchpad, and filled once.
            address, size = self.bands[operand.buffer.tensor_op]
            zero = e.loaded(0)
            e.emit("MLOAD", zero, e.loaded(size), zero, address)
            return
        segments = self.segments.get(operand.buffer.tensor_op)
        if segments is not None:
            address = e.loaded(segments.address(e, spans))
            count = e.loaded(segments.count(e, spans))
            e.emit("MLOAD", e.loaded(base), count, address, operand.place.address)
            return
        runs = e.settled(lambda: self._runs(operand, spans))
        if stream is not None:
            stream.start(runs, base)
        else:
            transfer(e, self._text(operand), runs, base, operand.element)

    def _runs(self, operand: Operand, spans: Spans) -> Runs:
        box = operand.box(self.e, spans, self.program.extents)
        return runs_of(self.e, box, operand.place, operand.order)

    def _store(self, tile: Tile, stream: Stream | None) -> None:
        e = self.e
        assert self.nest.output is not None
        operand = self.operands[self.nest.output.buffer]
        with e.scope():
            e.remark(f"store {operand.name}")
            runs = e.settled(lambda: self._runs(operand, tile.spans))
            base = tile.bases[operand.buffer]
            if stream is not None:
                stream.start(runs, base)
            else:
                transfer(e, self._text(operand), runs, base, operand.element)
