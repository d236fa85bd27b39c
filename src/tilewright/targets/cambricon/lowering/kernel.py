"""One kernel: its tile program becomes statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.memory import align_up
from tilewright.targets.cambricon.formats import REGISTERS
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.depthwise import Depthwise
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.flat import emit_tiles
from tilewright.targets.cambricon.lowering.join import Join
from tilewright.targets.cambricon.lowering.lrn_gradient import LrnGradient
from tilewright.targets.cambricon.lowering.matrix_mean import MatrixMean
from tilewright.targets.cambricon.lowering.maximum import MaximumGradient
from tilewright.targets.cambricon.lowering.nest import Nest, nest_of
from tilewright.targets.cambricon.lowering.normalise import Lrn, Softmax
from tilewright.targets.cambricon.lowering.outer import Outer
from tilewright.targets.cambricon.lowering.points import Points
from tilewright.targets.cambricon.lowering.pool_matrix import MatrixPool
from tilewright.targets.cambricon.lowering.pooling import Pool
from tilewright.targets.cambricon.lowering.prefetch import (
    FirstLoad,
    Interval,
    PlacedWeights,
    PrefetchSlot,
    WeightRequest,
)
from tilewright.targets.cambricon.lowering.product import Product
from tilewright.targets.cambricon.lowering.tables import Filled, KernelTables
from tilewright.targets.cambricon.lowering.temporaries import ALIGNMENT, Temporaries
from tilewright.targets.cambricon.lowering.tidy import tidied
from tilewright.targets.cambricon.lowering.transfers import Reserve, Transfers
from tilewright.targets.cambricon.lowering.weight_places import WeightPlaces
from tilewright.targets.cambricon.lowering.weights import Segments
from tilewright.targets.cambricon.statements import Statement
from tilewright.tile.dialect import ProgramOp, TensorOp

MOVED = ("input", "output", "residual", "weight")
"""Roles of the operands that gain most by streams."""

USES: tuple[tuple[Sequence[str], int], ...] = (
    ((*MOVED, "bias"), 45),
    (MOVED, 27),
    (("output",), 0),
    ((), 0),
)
"""Ways to spend the scalar registers, fastest first: roles of the operands that move in streams,
and how many addresses of pooled columns and results registers may hold.

The lowering takes as many registers as it likes; tidying says how many are alive together
(tidy.py). A kernel is lowered with the first way that leaves it enough."""

Image = Callable[[bytes], int]
"""Function that puts 16-bit elements into main memory, equal content once, and returns the
address."""


CODES: Mapping[str, type[Code]] = {
    "conv": Product,
    "matmul": Product,
    "depthwise_conv": Depthwise,
    "max_pool": Pool,
    "average_pool": Pool,
    "lrn": Lrn,
    "lrn_gradient": LrnGradient,
    "softmax": Softmax,
    "concat": Join,
    "maximum_gradient": MaximumGradient,
}
"""Code by the anchor's operation; all other operations are maps."""

MATRIX_CODES: Mapping[str, type[Code]] = {
    "matmul": Outer,
    "max_pool": MatrixPool,
    "average_pool": MatrixMean,
}
"""Code of operations whose result, or image, lies in the matrix scratchpad."""

PlaceWeights = Callable[[WeightRequest], PlacedWeights]
"""Places a kernel's weights, and finds an earlier kernel that issues their first load."""


@dataclass(frozen=True)
class Lowered:
    """A kernel's statements, and the weights that they take in segments."""

    statements: list[Statement]
    segments: dict[TensorOp, Segments]
    used: tuple[Interval, ...] = ()
    """Bytes of the matrix scratchpad."""
    slot: PrefetchSlot | None = None
    prefetch: FirstLoad | None = None
    """The load that it leaves to an earlier kernel."""
    resident: Mapping[TensorOp, Segments] = field(default_factory=dict[TensorOp, Segments])
    """The cuts of the weights that it finds in the matrix scratchpad."""
    tables: Filled = ()
    """The content that it leaves in the machine's tables."""
    registers: int = 0
    """Scalar registers that are alive together."""


def lower_kernel(
    program: ProgramOp,
    machine: Machine,
    bases: Mapping[str, int],
    image: Image,
    alone: Callable[[TensorOp], bool],
    reserve: Reserve,
    place: PlaceWeights,
    tables: Filled = (),
) -> Lowered:
    """A kernel's statements; ``alone`` says of weights whether no other kernel reads them.

    ``tables`` is what earlier kernels have left in the machine's.

    Raises TilewrightError.
    """
    needs: list[int] = []
    for streams, addresses in USES:
        e = Emitter(program.symbol.data, program.symbol.data)
        nest = nest_of(program, e, machine, bases)
        transfers = Transfers(nest, machine, streams, reserve)
        transfers.share(alone)
        lowered = _lowered(transfers, addresses, image, place, tables)
        if lowered.registers <= REGISTERS:
            return lowered
        needs.append(lowered.registers)
    raise refuse(
        "lower-registers",
        f"the kernel's loops need {min(needs)} of {REGISTERS} scalar registers",
        program.symbol.data,
        "plan it with fewer tiled dims, or run it on the host",
    )


def _lowered(
    transfers: Transfers, addresses: int, image: Image, place: PlaceWeights, filled: Filled
) -> Lowered:
    """A kernel's statements with one use of the registers, be these enough or not."""
    nest, e, machine = transfers.nest, transfers.e, transfers.machine
    tables = KernelTables(filled, e.where)
    matrix_temporaries = _temporaries(nest, machine, "msm")
    weights = WeightPlaces(nest, transfers, matrix_temporaries)
    in_vsm = _in_vsm(nest, machine)
    context = Context(e, nest, transfers, addresses, machine, in_vsm, matrix_temporaries, tables)
    name = context.anchor.operation.data
    ends = (context.output, context.source(context.anchor, 0)[0])
    in_matrix = any(operand.buffer.memory == "msm" for operand in ends)
    compute = (MATRIX_CODES if in_matrix else CODES).get(name, Points)(context)
    for number, data in tables.loads.items():
        zero, size = e.reg(0), e.reg(len(data) // 2)
        e.emit(f"VLOAD.table={number}", zero, size, zero, image(data))
    compute.prologue()
    prefetch: FirstLoad | None = None
    if (request := weights.request()) is not None:
        (buffer,) = nest.weights
        placed, operand = place(request), nest.operands[buffer]
        operand.moved_to, operand.later = placed.base, placed.later
        if (prefetch := placed.prefetch) is not None:
            transfers.prefetched.add(buffer)
    emit_tiles(nest, transfers, compute.emit, weights.leave_slot)
    e.finish()
    slot = weights.slot
    lost = {} if slot is None else {id(slot.place): slot.registers}
    tidy = tidied(e.statements, lost)
    if slot is not None and tidy.registers <= REGISTERS:
        slot = replace(slot, registers=tuple(tidy.clobbers[id(slot.place)]))
    elsewhere = {*transfers.copies, *transfers.resident}
    return Lowered(
        tidy.statements,
        {tensor: cut for tensor, cut in transfers.segments.items() if tensor not in elsewhere},
        weights.used(last=False),
        slot,
        prefetch,
        transfers.resident,
        tables.left,
        tidy.registers,
    )


def _temporaries(nest: Nest, machine: Machine, memory: str) -> Temporaries:
    """The end of a memory, which buffers leave to the primitive."""
    left = machine.memory_beside(machine.primitive(nest.compute.primitive.data), memory)
    return Temporaries(left.room or 0, left.reserved, nest.program.symbol.data)


def _in_vsm(nest: Nest, machine: Machine) -> Temporaries:
    """The end of VSM; and of the part before it, what no buffer uses.

    Buffers lie side by side, at the beginning of that part or, to keep clear of those of the kernel
    before, at its end.
    """
    temporaries = _temporaries(nest, machine, "vsm")
    moved = [
        operand
        for operand in nest.operands.values()
        if operand.buffer.memory == "vsm" and not operand.stays
    ]
    first = min((operand.address for operand in moved), default=0)
    end = align_up(max((each.address + each.bytes for each in moved), default=0), ALIGNMENT)
    temporaries.others = end if temporaries.start - end >= first else 0
    beside = max(temporaries.start - end, first)
    temporaries.beside = beside // ALIGNMENT * ALIGNMENT
    return temporaries
