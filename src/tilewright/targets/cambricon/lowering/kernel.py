"""One kernel: its tile program becomes statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.targets.cambricon.isa import REGISTERS
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.depthwise import Depthwise
from tilewright.targets.cambricon.lowering.early import (
    FirstLoad,
    Gap,
    Interval,
    Need,
    Settled,
)
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.join import Join
from tilewright.targets.cambricon.lowering.lrn_gradient import LrnGradient
from tilewright.targets.cambricon.lowering.matrix_mean import MatrixMean
from tilewright.targets.cambricon.lowering.maximum import MaximumGradient
from tilewright.targets.cambricon.lowering.nest import nest_of
from tilewright.targets.cambricon.lowering.normalise import Lrn, Softmax
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.outer import Outer
from tilewright.targets.cambricon.lowering.points import Points
from tilewright.targets.cambricon.lowering.pool_matrix import MatrixPool
from tilewright.targets.cambricon.lowering.pooling import Pool
from tilewright.targets.cambricon.lowering.product import Product
from tilewright.targets.cambricon.lowering.tables import Filled, KernelTables
from tilewright.targets.cambricon.lowering.temporaries import ALIGNMENT, Temporaries
from tilewright.targets.cambricon.lowering.tidy import tidied
from tilewright.targets.cambricon.lowering.tiles import Tile
from tilewright.targets.cambricon.lowering.walk import Walk
from tilewright.targets.cambricon.lowering.weight_places import WeightPlaces
from tilewright.targets.cambricon.lowering.weights import Segments, segments_of
from tilewright.targets.cambricon.machine import part_of
from tilewright.targets.cambricon.statements import Statement
from tilewright.tile.dialect import ProgramOp, TensorOp

Reserve = Callable[[TensorOp, Segments], int]
"""Makes room in main memory for a copy of weights; its address."""

Image = Callable[[bytes], int]
"""Puts 16-bit elements into main memory, each content once; their address."""


class Compute(Protocol):
    """The code of one kind of anchor."""

    def prologue(self) -> None:
        """Emit the code that runs before all tiles."""
        ...

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        ...


def product(context: Context) -> Compute:
    """A matrix product: of outer products where its result lies in the matrix scratchpad."""
    outer = context.output.buffer.memory == "msm"
    return Outer(context) if outer else Product(context)


def pool(context: Context) -> Compute:
    """A maximum over windows of an image in either scratchpad."""
    image, _ = context.source(context.anchor, 0)
    return MatrixPool(context) if image.buffer.memory == "msm" else Pool(context)


def mean(context: Context) -> Compute:
    """A mean over windows of an image in either scratchpad."""
    image, _ = context.source(context.anchor, 0)
    return MatrixMean(context) if image.buffer.memory == "msm" else Pool(context)


COMPUTES: Mapping[str, Callable[[Context], Compute]] = {
    "conv": Product,
    "matmul": product,
    "depthwise_conv": Depthwise,
    "max_pool": pool,
    "average_pool": mean,
    "lrn": Lrn,
    "lrn_gradient": LrnGradient,
    "softmax": Softmax,
    "concat": Join,
    "maximum_gradient": MaximumGradient,
}
"""By the anchor's operation; all others are maps."""

Settle = Callable[[Need], Settled]
"""Where a kernel's weights lie, and what an earlier kernel loads of the first ones."""


@dataclass(frozen=True)
class Lowered:
    """A kernel's statements, and the weights that they take in segments."""

    statements: list[Statement]
    segments: dict[TensorOp, Segments]
    used: tuple[Interval, ...] = ()
    """Bytes of the matrix scratchpad."""
    gap: Gap | None = None
    early: FirstLoad | None = None
    """The load that it leaves to an earlier kernel."""
    resident: Mapping[TensorOp, Segments] = field(default_factory=dict[TensorOp, Segments])
    """The cuts of the weights that it finds in the matrix scratchpad."""
    tables: Filled = ()
    """What it leaves in the machine's tables."""
    registers: int = 0
    """Scalar registers that are alive together."""


@dataclass(frozen=True)
class RegisterUse:
    """One way to spend the machine's scalar registers on a kernel."""

    streams: tuple[str, ...]
    """Roles of the operands that move in streams."""
    constants: int
    """Numbers that keep a register throughout."""
    pressure: int
    """How far registers are saved: primitives take fewer for themselves where it is higher."""
    streams_stores: bool = False
    """Whether the results of single pixels may be stored as they are finished."""


MOVED = ("input", "output", "residual", "weight")
"""Roles of the operands that gain most by streams."""

USES = (
    RegisterUse((*MOVED, "bias"), 12, 0, True),
    RegisterUse(MOVED, 12, 1, True),
    RegisterUse((*MOVED, "bias"), 12, 0),
    RegisterUse(MOVED, 12, 1),
    RegisterUse(MOVED, 2, 2),
    RegisterUse(("input", "output"), 4, 3),
    RegisterUse(("output",), 2, 4),
    RegisterUse((), 4, 5),
    RegisterUse((), 0, 6),
)
"""Ways to spend registers, fastest first: a kernel takes the first that leaves it enough."""


def lower_kernel(
    program: ProgramOp,
    machine: Machine,
    bases: Mapping[str, int],
    image: Image,
    alone: Callable[[TensorOp], bool],
    reserve: Reserve,
    settle: Settle | None = None,
    tables: Filled = (),
) -> Lowered:
    """A kernel's statements; ``alone`` says of weights whether no other kernel reads them.

    ``tables`` is what earlier kernels have left in the machine's.

    Raises TilewrightError.
    """
    needs: list[int] = []
    for use in USES:
        lowering = KernelLowering(program, machine, bases, image, reserve, use, tables)
        lowering.share(alone)
        lowered = lowering.lower(settle)
        if lowered.registers <= REGISTERS:
            return lowered
        needs.append(lowered.registers)
    raise refuse(
        "lower-registers",
        f"the kernel's loops need {min(needs)} of {REGISTERS} scalar registers",
        program.symbol.data,
        "plan it with fewer tiled dims, or run it on the host",
    )


class KernelLowering(WeightPlaces):
    """The lowering of one kernel to words."""

    def __init__(
        self,
        program: ProgramOp,
        machine: Machine,
        bases: Mapping[str, int],
        image: Image,
        reserve: Reserve,
        use: RegisterUse,
        tables: Filled,
    ) -> None:
        self.use, self.streams = use, use.streams
        self.spare = None
        self.program = program
        self.machine = machine
        self.bases = bases
        self.image = image
        self.reserve = reserve
        self.e = Emitter(program.symbol.data, program.symbol.data, use.constants)
        self.nest = nest_of(program)
        self.tables = KernelTables(tables, self.e.where)
        self.own = self._temporaries("msm")
        self.gap: Gap | None = None
        buffers = [*(load.buffer for load in self.nest.loads)]
        assert self.nest.output is not None
        buffers.append(self.nest.output.buffer)
        self.operands = {buffer: Operand(buffer, machine, bases) for buffer in buffers}
        self.segments = {}
        self.copies = {}
        self.resident: dict[TensorOp, Segments] = {}
        self.bands = {}
        self.bridges = {}
        for buffer in buffers:
            if buffer.memory == "msm" or buffer.get("role", "") == "weight":
                segments = segments_of(self.nest, buffer)
                whole = buffer.memory == "msm" and self.nest.output.buffer.accumulates is None
                if segments is not None and whole:
                    segments = replace(segments, co_step=part_of(machine, segments.co_step))
                if segments is not None:
                    self.segments[buffer.tensor_op] = segments
                    if buffer.stays is not None:
                        self.resident[buffer.tensor_op] = segments
                        self.operands[buffer].segments = segments

    def lower(self, settle: Settle | None) -> Lowered:
        """All statements of the kernel."""
        e, machine = self.e, self.machine
        assert self.nest.compute is not None
        walk = self.walk = Walk(e, self.nest, self.operands, self._pass)
        walk.pause, walk.pieces = self._pause, self._pieces
        walk.early = self.earliness
        temporaries = self._in_vsm()
        context = Context(
            e,
            self.program,
            self.nest.compute,
            machine,
            self.operands,
            {loop.dim.data: loop.step_size for loop in self.nest.loops},
            walk.stepped,
            temporaries,
            self.own,
            self.tables.number,
            frozenset(self.segments),
            walk.hook,
            self.use.pressure,
            self._widen,
            walk.pace,
            walk.renew,
            walk.replace,
            walk.may_trail if self.use.streams_stores else lambda dims: None,
            walk.finish,
            lambda operand, busy: self._bridge(operand, busy, context.temporaries),
        )
        kind = COMPUTES.get(context.anchor.operation.data, Points)
        compute = kind(context)
        for number, data in self.tables.loads.items():
            with e.scope():
                zero, size = e.loaded(0), e.loaded(len(data) // 2)
                e.emit(f"VLOAD.table={number}", zero, size, zero, self.image(data))
        compute.prologue()
        early: FirstLoad | None = None
        need = self._need() if settle is not None else None
        if need is not None and settle is not None:
            (buffer,) = self._weights()
            choice = settle(need)
            self.operands[buffer].moved_to = choice.place.base
            self.operands[buffer].later = choice.place.later
            if choice.early is not None:
                walk.begun.add(buffer)
                early = choice.early
            if choice.rest is not None:
                self._load(choice.rest)
        walk.emit(self._fill, compute.emit, self._store, self._stream)
        e.finish()
        used = self._used(last=False)
        elsewhere = {*self.copies, *self.resident}
        own = {tensor: cut for tensor, cut in self.segments.items() if tensor not in elsewhere}
        gap = self.gap
        lost = {} if gap is None else {id(gap.place): gap.registers}
        tidy = tidied(e.statements, lost)
        if gap is not None and tidy.registers <= REGISTERS:
            gap = replace(gap, registers=tuple(tidy.clobbers[id(gap.place)]))
        statements = tidy.statements
        left = self.tables.left
        return Lowered(statements, own, used, gap, early, self.resident, left, tidy.registers)

    def share(self, alone: Callable[[TensorOp], bool]) -> None:
        """Weights that other kernels load, too, are copied, once for each way in which they are
        cut: where they lie plainly, a tile would be a transfer for each of its rows."""
        for tensor in self.segments.keys() - self.resident.keys():
            if not alone(tensor):
                self.copies[tensor] = self.reserve(tensor, self.segments[tensor])

    def _temporaries(self, memory: str) -> Temporaries:
        """The end of a memory, which buffers leave to the primitive."""
        assert self.nest.compute is not None
        primitive = self.machine.primitive(self.nest.compute.primitive.data)
        left = self.machine.memory_beside(primitive, memory)
        return Temporaries(left.room or 0, left.reserved, self.program.symbol.data)

    def _in_vsm(self) -> Temporaries:
        """The end of VSM; no buffer lies in the part in front of it, either."""
        temporaries = self._temporaries("vsm")
        own = [operand for operand in self.operands.values() if operand.buffer.memory == "vsm"]
        behind = max(
            (operand.address + operand.bytes for operand in own if not operand.stays),
            default=temporaries.start,
        )
        temporaries.beside = max(temporaries.start - behind, 0) // ALIGNMENT * ALIGNMENT
        return temporaries

    def _widen(self, tensor: TensorOp, band: int, stride: int) -> bool:
        """Copy weights for bands of pixels; False where they do not fit the matrix scratchpad."""
        cut = replace(self.segments[tensor], band=band, stride=stride)
        if 2 * cut.banded_size > (self.machine.memory("msm").room or 0):
            return False
        self.bands[tensor] = self.reserve(tensor, cut), cut.banded_size
        buffer = next(b for b in self._weights() if b.tensor_op is tensor)
        # It is larger than the buffer, and the only one in its scratchpad, filled once.
        self.operands[buffer].moved_to = 0
        del self.segments[tensor]
        return True
