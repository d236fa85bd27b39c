"""A tile program as a C function: its loops, its buffers' slots, its waits, and calls.

Of this program (tile/dialect.py has the dialect)::

    tile.loop "oh" 0 to 28 step 4 {
      %bx = tile.buffer "x" of %x [...] in "feature" slots 2
      tile.move %x to %bx on "load" waits ["free x"]
      tile.compute "conv" on "compute" to %by waits ["ready x"] { ... }

becomes::

    for (int64_t oh = 0; oh < 28; oh += 4) {
        x_slot = (x_slot + 1) % 2;
        npu_wait(NPU_LOAD, NPU_COMPUTE, x_used[x_slot]);
        ticket = npu_load_feature(&(struct npu_load_feature){
            ...
        });
        x_filled[x_slot] = ticket;
        npu_wait(NPU_COMPUTE, NPU_LOAD, x_filled[x_slot]);
        ticket = npu_conv(&(struct npu_conv){
            ...
        });
        x_used[x_slot] = ticket;

Calls start commands and return a *ticket*: how many commands their engine has been given. The
program keeps, per buffer and slot, the tickets of its last filling and last use, and hands the
engine that has to wait what it waits for. So waits depend on no counting in advance, and commands
may be issued in the order of the text, whatever the program says of queues (``ahead``).

On machines with flags, signals and waits of the program are calls, and no tickets are kept::

    npu_set_flag(NPU_LOAD, NPU_COMPUTE, x_slot);
    npu_wait_flag(NPU_LOAD, NPU_COMPUTE, x_slot);
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.c.values import Executions, LoopVariable, SlotTerm, Tables
from tilewright.graph.names import identifier
from tilewright.ir import Block
from tilewright.machine.c_functions import CInterface
from tilewright.memory.alignment import ceil_div
from tilewright.tile.dialect import BufferOp, ComputeOp, DomainOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.iteration import Order
from tilewright.tile.operations import BarrierOp, SignalOp, WaitOp
from tilewright.tile.queues import Command, Queues, buffers_of, fills, followers_of, wait_parts

WIDTH = 100
"""Columns of a line."""


@dataclass(frozen=True)
class Value:
    """One parameter of a call."""

    name: str
    column: Any
    """One number for each execution, or one for all."""
    base: str = ""
    """A C expression to which the number is added."""
    names: tuple[str, ...] = ()
    """Constants that stand for the numbers 0, 1, ..."""
    slots: bool = False
    """True if the value may follow the slots of the operation's buffers, as addresses do."""
    group: str = ""
    """Parameters of one group stand on one line."""
    text: str = ""
    """The C expression of all executions, where the numbers are no integers."""


@dataclass(frozen=True)
class Call:
    """A command in C: a function that takes a record of its own name."""

    function: str
    engine: str
    values: Sequence[Value]


def engine_constant(named: CInterface, engine: str) -> str:
    """C's constant for an engine."""
    return f"{named.prefix}_{identifier(engine)}".upper()


def ticket_type(named: CInterface) -> str:
    """C's type of tickets."""
    return f"{named.prefix}_ticket"


@dataclass(frozen=True)
class Track:
    """The tickets of a buffer's slots that some wait asks for."""

    buffer: BufferOp
    kind: str
    """The event that the tickets stand for: ``filled`` or ``used``."""
    engine: str
    name: str


@dataclass
class KernelWriter:
    """Writes the body of one program's function."""

    order: Order
    calls: Mapping[Command, Call]
    first: Sequence[Call]
    """Commands before the program's own, such as loads of tables, for which computes wait."""
    interface: CInterface
    tables: Tables
    writer: Writer = field(default_factory=lambda: Writer(1))

    def __post_init__(self) -> None:
        self.program: ProgramOp = self.order.program
        self.queues = Queues(self.order)
        self._names: dict[LoopOp, str] = {}

    def write(self) -> list[str]:
        """The lines of the body."""
        buffers = [b for b in self.queues.buffers if b.slot_count > 1]
        for buffer in buffers:
            self.writer.line(f"int {self._slot(buffer)} = {buffer.slot_count - 1};")
        ticket = ticket_type(self.interface)
        for track in self.tracks:
            self.writer.line(f"{ticket} {track.name}[{track.buffer.slot_count}] = {{0}};")
        if self.tracks or (self.first and not self.interface.barrier):
            self.writer.line(f"{ticket} ticket = 0;")
        self.writer.line()
        once = Executions((), 1, self.tables)
        for call in self.first:
            self._call(call, once, (), "" if self.interface.barrier else "ticket = ")
        if self.first and self.interface.barrier:
            self.writer.line(f"{self.interface.barrier}();")
        computing = [op.engine.data for op in self.calls if isinstance(op, ComputeOp)]
        counted = () if self.interface.barrier else self.first
        for other in dict.fromkeys(call.engine for call in counted):
            for engine in dict.fromkeys(computing):
                if engine != other:
                    self._wait(engine, other, "ticket")
        self._block(self.program.body.block, ())
        self.writer.line(f"{self.interface.finish}();")
        return [*(f"    {line}" for line in self.tables.lines), *self.writer.lines]

    @cached_property
    def tracks(self) -> list[Track]:
        """The tickets that the waits need, by buffer, kind and engine."""
        tickets: dict[tuple[BufferOp, str, str], None] = {}
        for op in self.calls:
            for buffer, kind, engine, _ in self._waits(op):
                tickets[buffer, kind, engine] = None
        several = {
            (buffer, kind)
            for buffer, kind, engine in tickets
            if any((b, k) == (buffer, kind) and e != engine for b, k, e in tickets)
        }
        return [
            Track(
                buffer,
                kind,
                engine,
                f"{self._buffer_names[buffer]}_{kind}"
                + (f"_{identifier(engine)}" if (buffer, kind) in several else ""),
            )
            for buffer, kind, engine in tickets
        ]

    def _waits(self, op: Command) -> Iterator[tuple[BufferOp, str, str, bool]]:
        """Buffer, kind of ticket, engine, and whether every slot is meant, for each wait."""
        known = {buffer.symbol.data: buffer for buffer in self.queues.buffers}
        for wait in op.wait_list:
            verb, _, name = wait_parts(wait)
            buffer = known[name]
            users = self.queues.users_of(buffer)
            if verb == "ready":
                users = [other for other in users if fills(other, buffer)]
            every = verb == "free" and not any(fills(each, buffer) for each in _group(op))
            for engine in dict.fromkeys(other.engine.data for other in users):
                if engine != op.engine.data:
                    yield buffer, "filled" if verb == "ready" else "used", engine, every

    def _slot(self, buffer: BufferOp) -> str:
        return f"{self._buffer_names[buffer]}_slot"

    @cached_property
    def _buffer_names(self) -> dict[BufferOp, str]:
        """The prefix of each buffer's C variables: its role if unique, else a longer name."""
        prefixes: dict[BufferOp, str] = {}
        for name_of in (_role, _role_and_memory, _symbol):
            rest = [buffer for buffer in self.queues.buffers if buffer not in prefixes]
            names = Counter(map(name_of, rest))
            prefixes |= {buffer: name_of(buffer) for buffer in rest if names[name_of(buffer)] == 1}
        return prefixes

    def _block(self, block: Block, loops: tuple[LoopOp, ...]) -> None:
        for op in block.ops:
            if isinstance(op, BufferOp):
                self._buffer(op)
        for op in block.ops:
            if isinstance(op, LoopOp):
                self._loop(op, loops)
            elif isinstance(op, DomainOp):
                self._domain(op, loops)
            elif isinstance(op, (MoveOp, ComputeOp)) and op in self.calls:
                self._command(op, loops)
            elif isinstance(op, (SignalOp, WaitOp)):
                self._event(op)
            elif isinstance(op, BarrierOp):
                self.writer.line(f"/* {comment(op.reason.data)} */")
                self.writer.line(f"{self.interface.barrier}();")

    def _buffer(self, op: BufferOp) -> None:
        """A comment, and the next slot."""
        name, axes = op.symbol.data, ", ".join(str(axis) for axis in op.window.data)
        slots = f", {op.slot_count} slots" if op.slot_count > 1 else ""
        slots = ", rows turn" if op.circular is not None else slots
        place = f"{op.memory} at {op.get('address')}, {op.get('bytes')} bytes{slots}"
        self.writer.line(f"/* {comment(f'{name}: [{axes}] in {place}')} */")
        if op.slot_count > 1:
            slot = self._slot(op)
            self.writer.line(f"{slot} = ({slot} + 1) % {op.slot_count};")

    def _loop(self, op: LoopOp, loops: tuple[LoopOp, ...]) -> None:
        taken = {self._names[loop] for loop in loops}
        name, number = identifier(op.dim.data), 0
        while (self._names.setdefault(op, name)) in taken:
            number += 1
            self._names[op] = f"{name}_{number}"
        name = self._names[op]
        outer = op.parent_block()
        assert outer is not None
        rows, around = self.order.block(op.body.block), self.order.block(outer)
        trips = np.bincount(rows.parent_row, minlength=around.count)
        lower, step = op.lower_bound, op.step_size
        most = ceil_div(op.upper_bound - lower, step)
        if trips.size and int(trips.min()) == int(trips.max()) == most:
            limit = str(op.upper_bound)
        else:
            limit = self._executions(outer, loops).expression(lower + trips * step)
        head = f"for (int64_t {name} = {lower}; {name} < {limit}; {name} += {step})"
        with self.writer.block(head):
            self._block(op.body.block, (*loops, op))

    def _domain(self, op: DomainOp, loops: tuple[LoopOp, ...]) -> None:
        """The body, under the condition that the domain is not empty."""
        outer = op.parent_block()
        assert outer is not None
        rows, around = self.order.block(op.body.block), self.order.block(outer)
        bound = ", ".join(f"{dim} = {axis}" for dim, axis in op.bound.items())
        self.writer.line(f"/* {comment(f'within {bound}')} */")
        if rows.count == around.count:
            self._block(op.body.block, loops)
            return
        runs = np.isin(np.arange(around.count), rows.parent_row)
        with self.writer.block(f"if ({self._executions(outer, loops).expression(runs)})"):
            self._block(op.body.block, loops)

    def _executions(self, block: Block, loops: tuple[LoopOp, ...]) -> Executions:
        variables = list[LoopVariable]()
        for around, rows, index in self.order.outwards(block):
            if isinstance(op := around.parent_op(), LoopOp):
                trip = rows.trip[index]
                name, lower, step = self._names[op], op.lower_bound, op.step_size
                variables.append(LoopVariable(name, lower, step, trip))
        assert len(variables) == len(loops)
        return Executions(variables[::-1], self.order.block(block).count, self.tables)

    def _command(self, op: Command, loops: tuple[LoopOp, ...]) -> None:
        block = op.parent_block()
        assert block is not None
        if self.writer.lines[-1:] != [""]:
            self.writer.line()
        names = {(t.buffer, t.kind, t.engine): t.name for t in self.tracks}
        for buffer, kind, engine, every in self._waits(op):
            name = names[buffer, kind, engine]
            for slot in map(str, range(buffer.slot_count)) if every else [self._index(buffer)]:
                self._wait(op.engine.data, engine, f"{name}[{slot}]")
        touched = dict.fromkeys(b for command in _group(op) for b in buffers_of(command))
        slots = [
            SlotTerm(self._slot(b), int(b.get("bytes")), self.order.slot(b, op), _role(b))
            for b in touched
            if b.places > 1
        ]
        kept = [
            f"{t.name}[{self._index(t.buffer)}] = ticket;"
            for t in self.tracks
            if t.engine == op.engine.data
            and t.buffer in touched
            and (t.kind == "used" or any(fills(command, t.buffer) for command in _group(op)))
        ]
        self._call(
            self.calls[op], self._executions(block, loops), slots, "ticket = " if kept else ""
        )
        for line in kept:
            self.writer.line(line)

    def _event(self, op: SignalOp | WaitOp) -> None:
        """Set a flag, or wait for one; ids follow one another as the buffer's slots do."""
        named, ids = self.interface, op.id_list
        engines = ", ".join(engine_constant(named, e) for e in (op.source_engine, op.target_engine))
        of, number = op.turns_of, str(ids[0])
        if of is not None and isinstance(of.owner, BufferOp):
            slot = self._index(of.owner)
            number = f"{ids[0]} + {slot}" if ids[0] else slot
            if ids != tuple(range(ids[0], ids[0] + of.owner.slot_count)):
                number = f"(const int[]){{{', '.join(map(str, ids))}}}[{slot} % {len(ids)}]"
        function = named.signal if isinstance(op, SignalOp) else named.wait
        self.writer.line(f"{function}({engines}, {number});")

    def _index(self, buffer: BufferOp) -> str:
        return self._slot(buffer) if buffer.slot_count > 1 else "0"

    def _wait(self, engine: str, other: str, ticket: str) -> None:
        engines = ", ".join(engine_constant(self.interface, name) for name in (engine, other))
        self.writer.line(f"{self.interface.wait}({engines}, {ticket});")

    def _call(self, call: Call, runs: Executions, slots: Sequence[SlotTerm], before: str) -> None:
        """The call; parameters that are 0 are left out."""
        self.writer.line(f"{before}{call.function}(&(struct {call.function}){{")
        lines: list[str] = []
        group = None
        for value in call.values:
            mine = sorted(slots, key=lambda slot: slot.role != value.group) if value.slots else ()
            text = value.text or runs.expression(value.column, mine)
            if text.isdigit() and int(text) < len(value.names):
                text = value.names[int(text)] if text != "0" else text
            if value.base:
                text = value.base if text == "0" else f"{value.base} + {text}"
            if text == "0":
                continue
            item = f".{value.name} = {text},"
            room = WIDTH - 4 * (self.writer.depth + 1)
            if lines and value.group == group and len(lines[-1]) + 1 + len(item) <= room:
                lines[-1] += f" {item}"
            else:
                lines.append(item)
            group = value.group
        for line in lines:
            self.writer.line(f"    {line}")
        self.writer.line("});")


def _role(buffer: BufferOp) -> str:
    return identifier("" if buffer.role is None else buffer.role.data, "buffer")


def _role_and_memory(buffer: BufferOp) -> str:
    return f"{_role(buffer)}_{identifier(buffer.memory)}"


def _symbol(buffer: BufferOp) -> str:
    return f"{_role(buffer)}_{identifier(buffer.symbol.data)}"


def _group(op: Command) -> list[Command]:
    """A command's operation, and the moves that travel with it."""
    return [op, *followers_of(op)]
