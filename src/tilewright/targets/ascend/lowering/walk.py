"""From a tile program to a kernel: its loops, buffers, moves and computes, in its order.

A loop of the program is a loop of the kernel, a buffer a buffer with as many slots in the same
memory, which belongs to the loop that it stands in; the outermost loops that cores share are the
grid of blocks (``Program.blocks``). What moves and computes become depends on the formats of the
operands: ``Forms`` says it for products of matrices (matrices.py) and for convolutions (images.py).
Each compute of a program has forms of its own (``Chain``). What one leaves to another waits in a
buffer; a domain around the first is the part of its dims that the other reads.
Stages after the product or the convolution come with the results' way out of L0C: the conversion
and relu with the move to UB, others in UB.

A buffer has the address, the bytes and the slots that the tile program says; the walk holds that
its tile fits (``Forms.bytes``). What an epilogue needs beside them it takes of the bytes of UB that
the primitive keeps for itself after all buffers (``Primitive.reserved``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import ClassVar

from tilewright.codegen.nest.span import whole
from tilewright.codegen.nest.value import Value, equal, least, more, select, variable
from tilewright.errors import TilewrightError, refuse
from tilewright.ir import Block, SSAValue
from tilewright.ir.types import element_name, layout_of
from tilewright.planning.layout import Layout
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import ELEMENTS, WIDTHS
from tilewright.targets.ascend.lowering.nest import (
    Span,
    Spans,
    cut,
    interval,
    slot_of,
)
from tilewright.targets.ascend.machine import BLOCK, DaVinci
from tilewright.targets.ascend.program import (
    Barrier,
    Buffer,
    Command,
    Flag,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
    block_places,
    counter,
)
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    TensorOp,
    enclosing_loops,
    enclosing_scopes,
    shared_loops,
)
from tilewright.tile.handovers import PART
from tilewright.tile.iteration import nest_rows
from tilewright.tile.operations import BarrierOp, EventOp, SignalOp

Loops = tuple[tuple[Loop, int, LoopOp], ...]
"""Loops of the kernel around a place, outermost first: how often each runs at most, and the
program's."""


PARAMETERS = {
    "input": "a",
    "weight": "b",
    "bias": "bias",
    "residual": "d",
    "output": "c",
    "internal": "t",
}
"""Names of parameters by the roles of tensors, and of what stays on the chip."""


@dataclass
class Home:
    """A buffer of the program: where it lies, and the tile that it holds."""

    op: BufferOp
    buffer: Buffer
    spans: Spans
    """The spans of the dims where the buffer is declared."""
    computed: Spans = field(default_factory=dict[str, Span])
    """Spans of the dims of which the compute that fills it makes all indices, in a domain."""

    @property
    def memory(self) -> str:
        """The name of the buffer's memory."""
        return self.op.memory


Homes = dict[SSAValue, Home]
"""Homes by the values of buffers."""


class Forms(ABC):
    """The forms of a compute's operands in the memories, and the moves between them."""

    whole_tiles: ClassVar[bool] = False
    """True if tiles at the end of a launch's length are computed whole."""

    def __init__(self, program: ProgramOp, compute: ComputeOp, core: DaVinci, homes: Homes) -> None:
        self.program, self.core, self.homes, self.of = program, core, homes, compute
        self.before: list[Statement] = []
        """Statements before all loops, once the walk is done."""
        self.work: list[Buffer] = []
        """Buffers of UB after the program's, once the walk is done."""
        self.operands = operands_of(compute)
        self.integers = any(element_of(op) == "int8_t" for op, _ in self.operands.values())

    def refusal(self, reason: str) -> TilewrightError:
        """A refusal (``lower-operation``) that names the model's nodes."""
        return refusal(self.program, reason)

    @abstractmethod
    def extents(self) -> dict[str, int]:
        """Extent of every dim, rounded up where it comes in blocks."""

    @abstractmethod
    def block_of(self, dim: str) -> int:
        """Indices of a block along a dim of the program, of which tiles are whole ones."""

    @abstractmethod
    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of one slot of a buffer."""

    @abstractmethod
    def column(self, home: Home) -> Span:
        """The columns that the buffer of a row, of biases or factors, holds."""

    @abstractmethod
    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Return the statements that fill a buffer."""

    @abstractmethod
    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Return the statements that store a result from a buffer."""

    @abstractmethod
    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The product of tiles; ``loops`` are those around it over dims that are summed."""

    def sizes(self, dim: str) -> set[int]:
        """The sizes that tiles have along a dim; none where there is no such dim."""
        sizes = {self.program.extents[dim]} if dim in self.program.extents else set[int]()
        for loop in enclosing_loops(self.of):
            if loop.dim.data == dim:
                step = loop.step_size
                whole = {step for size in sizes if size >= step}
                sizes = whole | {size % step for size in sizes if size % step}
        return sizes

    def versions(
        self,
        spans: Sequence[tuple[Value, Collection[int]]],
        make: Callable[[tuple[int, ...]], list[Statement]],
    ) -> list[Statement]:
        """Statements for every combination of the sizes that some spans have, which ``make``
        takes, each under the condition that these are its."""
        body: list[Statement] = []
        for sizes in product(*(sorted(several) for _, several in spans)):
            part: list[Statement] = make(sizes)
            for (size, several), one in zip(spans, sizes, strict=True):
                if part and len(several) > 1:
                    part = [Loop(f"of_{one}", select(equal(size, one), 1, 0), [*part])]
            body += part
        return body

    def element(self, op: BufferOp) -> str:
        """The element type of a buffer, as in C: sums of halves are floats, of integers
        integers."""
        if op.memory == "cc":
            return "int32_t" if self.integers else "float"
        return element_of(op.tensor_op)

    def parameter(self, op: TensorOp) -> tuple[str, str]:
        """The name of a parameter of the kernel, and its element type, as in C."""
        return PARAMETERS[op.role.data], "half"

    def main_bytes(self, op: TensorOp) -> int:
        """Bytes of a tensor in main memory, in its layout, rows in whole blocks of 16."""
        kind, width = op.result.type, WIDTHS[element_of(op)]
        shape = kind.get_shape()
        if is_row(op):
            return padded(prod(shape)) * width
        return Layout.parse(layout_of(op.result), len(shape)).size(shape) * width

    def load_row(self, home: Home, tensor: Home | Tensor) -> list[Statement]:
        """A number for each column to UB."""
        assert isinstance(tensor, Tensor)
        columns, width = self.column(home), WIDTHS[self.element(home.op)]
        at, length = columns.start * width, columns.size * width // BLOCK
        return [isa.copy(Place(home.buffer), Place(tensor, at), 1, length)]


class Chain:
    """The forms of a program's computes. An operand has the forms of the compute that reads or
    writes it; a tensor between two computes has the reader's."""

    def __init__(self, program: ProgramOp, make: Callable[[ComputeOp], Forms]) -> None:
        self.computes: dict[ComputeOp, Forms] = {}
        self.buffers: dict[BufferOp, Forms] = {}
        self.tensors: dict[str, Forms] = {}
        """Tensors by name; none for what stays on the chip."""
        for op in program.walk():
            if isinstance(op, ComputeOp):
                self.computes[op] = make(op)
        for op, forms in self.computes.items():
            read = [value for stage in op.stages for value in stage.inputs]
            for value in (op.output, *read):  # A reader's forms last.
                buffer = value.owner if isinstance(value.owner, BufferOp) else None
                while buffer is not None:
                    self.buffers[buffer] = forms
                    self.tensors[buffer.tensor_op.symbol.data] = forms
                    buffer = buffer.outer_buffer
        self.all = list(self.computes.values())
        """The forms of all computes, in the program's order."""
        self.whole_tiles = all(forms.whole_tiles for forms in self.all)

    def extents(self) -> dict[str, int]:
        """Extents of all dims; those of blocks of two kinds are whole blocks of both."""
        extents: dict[str, int] = {}
        for forms in self.all:
            for dim, extent in forms.extents().items():
                extents[dim] = max(extent, extents.get(dim, 0))
        return extents

    def block_of(self, dim: str) -> int:
        """Indices of a block along a dim."""
        return max(forms.block_of(dim) for forms in self.all)


@dataclass
class Walk:
    """One program on its way to a kernel."""

    program: ProgramOp
    chain: Chain
    tensors: Mapping[str, Tensor]
    """Tensors by their names in the program."""
    homes: Homes
    """The homes of the program's buffers that the walk has visited."""
    free: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """Dims of which a launch has fewer indices, by ``LENGTH``: how many, at most as many as the
    program."""
    longest: int = 0
    """The largest value of ``LENGTH``; 0 without such dims."""
    names: dict[str, int] = field(default_factory=dict[str, int])
    shared: list[LoopOp] = field(default_factory=list[LoopOp])
    """The loops that cores share."""
    grid: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Variables of these loops, outermost first, and how many parts there are."""
    counters: dict[Loop, tuple[Command, Command]] = field(
        default_factory=dict[Loop, tuple[Command, Command]]
    )
    """For loops whose runs are counted: the command that starts a counter, and the one that
    counts."""
    ended: list[Value] = field(default_factory=list[Value])
    """The number of indices of parts along dims of ``free``; none where that is not positive."""

    def kernel(self, name: str, order: tuple[str, ...], about: str) -> Program:
        """The kernel without flags; ``order`` is that of its parameters."""
        body: list[Statement] = []
        spans = whole(self.chain.extents())
        for dim, size in {} if self.chain.whole_tiles else self.free.items():
            spans[dim] = replace(spans[dim], size=size)
        self.shared = shared_loops(self.program)
        self._block(self.program.body.block, body, spans, ())
        body = [*(start for start, _ in self.counters.values()), *body]
        if self.ended:
            body = self._guarded(body)
        tensors = tuple(self.tensors[symbol] for symbol in order)
        before = [statement for forms in self.chain.all for statement in forms.before]
        work = [buffer for forms in self.chain.all for buffer in forms.work]
        buffers = (*(home.buffer for home in self.homes.values()), *work)
        constants, blocks = block_places(self.grid)
        return Program(
            *(name, tensors, [*before, *body], buffers, about, self.longest),
            blocks=blocks,
            constants=constants,
        )

    def _guarded(self, body: list[Statement]) -> list[Statement]:
        """Return a body that only blocks run for which a shorter length leaves work."""
        size = self.ended[0]
        for other in self.ended[1:]:
            size = least(size, other)
        guard = Loop("within", select(more(size, 0), 1, 0), body)
        for home in self.homes.values():
            if home.buffer.scope is None:
                home.buffer.scope = guard
        return [guard]

    def _block(self, block: Block, body: list[Statement], spans: Spans, loops: Loops) -> None:
        for op in block.ops:
            if isinstance(op, TensorOp):
                continue
            if isinstance(op, LoopOp):
                self._loop(op, body, spans, loops)
            elif isinstance(op, BufferOp):
                self._buffer(op, spans, loops)
            elif isinstance(op, MoveOp):
                body += self._move(op)
            elif isinstance(op, ComputeOp):
                summed = self._summed(op, loops)
                body += self.chain.computes[op].compute(op, spans, summed)
            elif isinstance(op, DomainOp):
                self._domain(op, body, spans, loops)
            elif isinstance(op, EventOp):
                body.append(self._flag(op))
            elif isinstance(op, BarrierOp):
                if op.reason.data != PART:  # At the end of a block nothing follows.
                    body.append(Barrier("ALL"))
            else:
                raise refusal(self.program, f"there is no kernel with {op.name}")

    def _loop(self, op: LoopOp, body: list[Statement], spans: Spans, loops: Loops) -> None:
        dim, step = op.dim.data, op.step_size
        span = spans[dim]
        upper = op.upper_bound
        block = self.chain.block_of(dim)
        upper += -upper % block
        if step % block and step < span.most:
            reason = f"tiles of {step} along {dim} are no whole blocks of {block}"
            raise refusal(self.program, reason)
        if op.lower_bound:
            reason = f"the loop over {dim} begins within its extent"
            raise refusal(self.program, reason)
        if op in self.shared:
            loop, trips, inner = cut(span, step, upper, f"{dim}_block")
            if self.chain.whole_tiles and dim in self.free:
                self.ended.append(self.free[dim] - inner.start)
            elif not isinstance(loop.count, int):
                self.ended.append(span.size - loop.variable * step)
            self.grid.append((loop.name, trips))
            self._block(op.body.block, body, {**spans, dim: inner}, loops)
            return
        number = self.names.get(dim, 0)
        self.names[dim] = number + 1
        loop, trips, inner = cut(span, step, upper, f"{dim}_{number}" if number else dim)
        if self.chain.whole_tiles and dim in self.free and loop.count != 1:
            loop.count = (least(span.size, self.free[dim] - span.start) + (step - 1)) // step
        body.append(loop)
        self._block(op.body.block, loop.body, {**spans, dim: inner}, (*loops, (loop, trips, op)))
        if loop in self.counters:
            loop.body.append(self.counters[loop][1])

    def _domain(self, op: DomainOp, body: list[Statement], spans: Spans, loops: Loops) -> None:
        """The part of a compute's domain that a later one reads here."""
        if op.sliding_dims:
            reason = "rows that tiles leave to the next have no kernel"
            raise refusal(self.program, reason)
        first = next(iter(op.body.block.ops))
        rows, inner = nest_rows(enclosing_scopes(first), self.program.extents), dict(spans)
        for dim, axis in op.bound.items():
            most, extents = int(rows.size(dim).max()), self.chain.extents()
            extents[dim] = self.program.extents[dim]
            inner[dim], commands = interval(axis, spans, extents, most, dim)
            body += commands
        # Of what its compute makes all, the domain says, and no loop of its own.
        for compute in op.walk():
            if isinstance(compute, ComputeOp) and waiting(compute).result in self.homes:
                self.homes[waiting(compute).result].computed = inner
        self._block(op.body.block, body, inner, loops)

    def _flag(self, op: EventOp) -> Flag:
        """The flag that a pipe sets or waits for; one of several by the slot that is in use."""
        first, *others = op.id_list
        turns = op.turns_of if others else None
        slot: Value = 0
        if turns is not None:
            home, turn = self.homes[turns], len(op.id_list)
            slot = home.buffer.slot if home.buffer.slots == turn else home.buffer.slot % turn
        kind = "set" if isinstance(op, SignalOp) else "wait"
        return Flag(kind, op.source_engine.upper(), op.target_engine.upper(), slot + first)

    def _summed(self, op: ComputeOp, loops: Loops) -> list[Loop]:
        """The loops over dims that are summed."""
        reduction = summed_dims(op)
        return [loop for loop, trips, of in loops if of.dim.data in reduction and trips > 1]

    def _buffer(self, op: BufferOp, spans: Spans, loops: Loops) -> None:
        memory, size, slots = op.memory, op.get("bytes"), op.slot_count
        forms = self.chain.buffers[op]
        needed = forms.bytes(op, spans)
        if needed > size:
            reason = f"a tile of {op.symbol.data} in {memory} takes {needed} bytes, not {size}"
            raise refusal(self.program, reason)
        scope = loops[-1][0] if loops else None
        slot = self._slot(loops, slots) if slots > 1 else 0
        name = f"{self.tensors[op.tensor_op.symbol.data].name}_{memory}"
        element = forms.element(op)
        buffer = Buffer(name, memory, op.get("address"), size, slots, slot, scope, element)
        self.homes[op.result] = Home(op, buffer, spans, spans)

    def _slot(self, loops: Loops, slots: int) -> Value:
        """The slot of a run of a block; runs are counted where no expression of the loops'
        variables says it."""
        slot = slot_of(loops, slots)
        if slot is None:
            loop = loops[-1][0]
            self.counters.setdefault(loop, counter(f"{loop.name}_turn"))
            slot = variable(f"{loop.name}_turn") % slots
        return slot

    def _move(self, op: MoveOp) -> list[Statement]:
        home = self.homes[op.buffer.result]
        outer = self.homes.get(op.outer)
        end = outer or self.tensors[op.buffer.tensor_op.symbol.data]
        forms = self.chain.buffers[home.op]
        return forms.load(home, end) if op.loads else forms.store(home, end)


def refusal(program: ProgramOp, reason: str) -> TilewrightError:
    """A refusal (``lower-operation``) of a program that names the model's nodes."""
    nodes = ", ".join(str(node) for node in program.get("nodes", ()))
    return refuse("lower-operation", reason, nodes or program.symbol.data)


def waiting(compute: ComputeOp) -> BufferOp:
    """The outermost buffer of a compute's result: of one that a later compute reads, where it waits
    for that."""
    owner = compute.output.owner
    assert isinstance(owner, BufferOp)
    while (outer := owner.outer_buffer) is not None:
        owner = outer
    return owner


def operands_of(compute: ComputeOp) -> dict[str, tuple[TensorOp, str]]:
    """The tensors that a compute reads and writes, each in its role, by name."""
    output = waiting(compute).tensor_op
    operands = {output.symbol.data: (output, "output")}
    for stage in compute.stages:
        for value in stage.inputs:
            if isinstance(value.owner, BufferOp):
                tensor = value.owner.tensor_op
                operands[tensor.symbol.data] = tensor, value.owner.get("role", "")
    return operands


def summed_dims(compute: ComputeOp) -> frozenset[str]:
    """The dims over which a compute sums, by the program's names."""
    *read, written = compute.stages[0].windows.data
    return frozenset[str]().union(*(window.dims for window in read)) - written.dims


def element_of(op: TensorOp) -> str:
    """The element type of a tensor, as in C; a bias of floats comes in halves."""
    name = element_name(op.result.type.element_type)
    if op.role.data == "bias" and name == "float32":
        return "half"
    if name not in ELEMENTS:
        raise refuse("lower-operation", f"{op.symbol.data} has elements of {name}")
    return ELEMENTS[name]


def is_row(op: TensorOp) -> bool:
    """Return True if a tensor has a number for each column: a bias, or factors of sums."""
    return op.role.data == "bias" or (element_of(op) == "float" and op.role.data != "internal")


def column_of(op: BufferOp) -> str:
    """The dim of a row's columns, its last axis; "" where that has one index."""
    dims = op.window.data[-1].dims
    return dims[0] if dims else ""
