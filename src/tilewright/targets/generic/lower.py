"""Lowering: the tile programs of a network become one program of instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.locations import BufferPlace, TensorPlace
from tilewright.codegen.program.transfers import transfer_columns
from tilewright.codegen.words import Column, Units, encode_columns
from tilewright.errors import Refusals, refuse
from tilewright.ir.types import Array, fraction_of
from tilewright.numerics.element_types import size_of
from tilewright.simulate.commands import TIMED, TimedArray
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import Instruction, InstructionSet
from tilewright.targets.generic.lowering.carried import Carried
from tilewright.targets.generic.lowering.computes import lower_compute
from tilewright.targets.generic.lowering.context import Context
from tilewright.targets.generic.lowering.gather import gather_columns
from tilewright.targets.generic.lowering.hazards import Footprint, Hazards, Use
from tilewright.targets.generic.lowering.parts import Part
from tilewright.targets.generic.lowering.prefetch import Prefetch
from tilewright.targets.generic.lowering.steps import Tables
from tilewright.targets.generic.lowering.tables import TABLE_SLOT, TableMemory
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp, TensorOp
from tilewright.tile.iteration import Order
from tilewright.tile.queues import Command, Queues, leader_of
from tilewright.tile.races import Proof

FIRST = -1
"""Key of what a kernel does before its own commands, whose keys start at 0."""


@dataclass
class Lowering:
    """Lowers kernels one after the other.

    ``bases`` has the address in main memory of every arena, and of the image of the function
    tables under ``tables``, which this fills.
    """

    instructions: InstructionSet
    bases: Mapping[str, int]
    content: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict[str, NDArray[np.uint8]])
    """The arenas whose bytes are known: the weights, of which compressed ones are read."""
    kernels: list[list[Part]] = field(default_factory=list[list[Part]])
    symbols: list[str] = field(default_factory=list[str])
    """The kernels' symbols."""
    signalled: dict[int, int] = field(default_factory=dict[int, int])
    """Per reply word, what it has counted at the end of the kernels so far."""

    def __post_init__(self) -> None:
        self.machine = self.instructions.machine
        self.counts = dict.fromkeys(range(len(self.machine.engines)), 0)
        """Commands of every engine so far."""
        self.hazards = Hazards()
        """The uses of all kernels before."""
        self.tables = TableMemory(self.instructions, self.bases[TABLES], self.hazards, self.counts)

    @property
    def table_image(self) -> bytearray:
        """All function tables, as they lie in main memory."""
        return self.tables.image

    def barrier(self) -> None:
        """The host runs here: all before ends first, all after waits for it."""
        self.hazards.settle(self.counts)

    def kernel(self, program: ProgramOp) -> None:
        """Append a kernel. Raises TilewrightError."""
        KernelLowering(self, program).lower()

    def words(self) -> tuple[Units, list[int]]:
        """Units [instructions, units], and the first instruction of every kernel and of what would
        follow. Raises KernelError."""
        width = self.instructions.instructions[0].units
        chunks: list[Units] = [np.zeros((0, width), np.uint64)]
        starts, refused = [0], Refusals()
        for symbol, parts in zip(self.symbols, self.kernels, strict=True):
            for part in parts:
                words = chunks[0]
                with refused.of(symbol):
                    words = encode_columns(
                        self.instructions, part.instruction, part.columns, part.keys.size
                    )
                chunks.append(words)
            count = len(parts)
            keys = [part.keys for part in parts]
            if count and not refused.errors:
                order = np.argsort(np.concatenate(keys), kind="stable")
                chunks[-count:] = [np.concatenate(chunks[-count:])[order]]
            starts.append(starts[-1] + sum(key.size for key in keys))
        refused.check()
        return np.concatenate(chunks), starts

    def timed(self) -> TimedArray:
        """TIMED records of the program, without encoding it, each with the waits that its fields
        count; not those for signals."""
        chunks: list[TimedArray] = [np.zeros(0, TIMED)]
        for number, parts in enumerate(self.kernels):
            if not parts:
                continue
            table = np.concatenate([part.timed(self.instructions) for part in parts])
            table["kernel"] = number
            keys = np.concatenate([part.keys for part in parts])
            chunks.append(table[np.argsort(keys, kind="stable")])
        return np.concatenate(chunks)


class KernelLowering:
    """The lowering of one kernel to commands."""

    def __init__(self, whole: Lowering, program: ProgramOp) -> None:
        self.whole = whole
        self.program = program
        self.machine = whole.machine
        self.order = Order(program)
        self.queues = Queues(self.order)
        self.engines = [engine.name for engine in self.machine.engines]
        self._buffers: dict[BufferOp, BufferPlace] = {}
        self._tensors: dict[TensorOp, TensorPlace] = {}
        self._tables: list[bytes] = []
        self._addresses: dict[bytes, int] = {}

    @cached_property
    def commands(self) -> list[Command]:
        """The moves and computes that are commands of their own: joined moves left out."""
        return [
            op
            for op in self.queues.commands
            if not (isinstance(op, MoveOp) and op.joined is not None)
        ]

    def instruction(self, op: Command) -> Instruction:
        """The instruction of a command."""
        if isinstance(op, MoveOp):
            return self._move_instruction(op)
        anchor = op.stages[0].operation.data
        return self.whole.instructions.for_compute(op.primitive.data, anchor)

    def transfer(self, op: MoveOp) -> Part:
        """The instructions of a move, without waits."""
        instruction, columns = self._move(op)
        return Part(instruction, columns, self.order.rows(op).key)

    def buffer(self, op: BufferOp) -> BufferPlace:
        """Place of a buffer."""
        if op not in self._buffers:
            accumulator = size_of(self.machine.accumulator)
            self._buffers[op] = BufferPlace(op, self.order, accumulator)
        return self._buffers[op]

    def tensor(self, op: TensorOp) -> TensorPlace:
        """Place of a tensor."""
        if op not in self._tensors:
            self._tensors[op] = TensorPlace.of(op, self.whole.bases)
        return self._tensors[op]

    def fields(self) -> tuple[list[Part], dict[Command, tuple[Instruction, dict[str, Any]]]]:
        """The loads of function tables, which come first, and every command's instruction and
        fields, without waits."""
        computes = [op for op in self.commands if isinstance(op, ComputeOp)]
        # Which tables the kernel needs is known once its computes are lowered.
        lowered = {op: self._compute(op) for op in computes}
        self._addresses, parts = self.whole.tables.load(self._tables)
        for _, columns in lowered.values():
            for name, value in columns.items():
                if isinstance(value, _Table):
                    columns[name] = self._addresses[value.data]
        moves = [op for op in self.commands if isinstance(op, MoveOp)]
        return parts, lowered | {op: self._move(op) for op in moves}

    def lower(self) -> None:
        """Append the kernel to the program."""
        parts, lowered = self.fields()
        if self.machine.synchronisation.signals:
            parts = self._signalled(parts, lowered)
        else:
            parts += self._counted(lowered)
        self.whole.kernels.append(parts)
        self.whole.symbols.append(self.program.symbol.data)

    def _signalled(
        self, loads: list[Part], lowered: Mapping[Command, tuple[Instruction, dict[str, Any]]]
    ) -> list[Part]:
        """The kernel behind a barrier, in order by its own signals."""
        carried = Carried(self.queues, self.machine, self.whole.signalled)
        barrier = self.whole.instructions.by_mnemonic["barrier"]
        parts = [Part(barrier, {}, np.full(1, FIRST - 1, np.int64))] if self.whole.kernels else []
        parts += loads
        if loads and not self._await(loads[0].instruction.engine):
            parts.append(Part(barrier, {}, np.full(1, FIRST, np.int64)))
        for op in self.commands:
            instruction, columns = lowered[op]
            parts.append(Part(instruction, columns | carried.fields(op), self.order.rows(op).key))
        parts += carried.parts(self.whole)
        return parts

    def _await(self, engine: int) -> bool:
        """Return True if all computes wait for something that an engine does in this kernel, and
        so for what it does before."""
        known, name = Proof(self.order, self.queues).clocks(), self.engines[engine]
        for op in self.commands:
            if isinstance(op, ComputeOp) and op.engine.data != name and self.order.rows(op).count:
                done = known[op.engine.data].get(name)
                if done is None or not done[self.queues.position(op)[0]]:
                    return False
        return True

    def _counted(self, lowered: Mapping[Command, tuple[Instruction, dict[str, Any]]]) -> list[Part]:
        """The kernel beside the one before it, by counts of commands."""
        commands = self.commands
        base = dict(self.whole.counts)
        uses = {op: self._uses(op) for op in commands}
        local = {op: self.queues.waits(op) for op in commands}
        prefetch = Prefetch(
            {op: self.order.rows(op).key for op in commands},
            {op: op.engine.data for op in commands},
            self._first_loads(local),
        )
        waits = {op: self._waits(op, uses[op], prefetch.waits(local[op]), base) for op in commands}
        parts: list[Part] = []
        for op in commands:
            instruction, columns = lowered[op]
            parts.append(Part(instruction, columns | waits[op], prefetch.keys[op]))
        for op in commands:
            engine = self.engines.index(op.engine.data)
            counts = base[engine] + prefetch.positions[op] + 1
            self.whole.hazards.add(uses[op], engine, counts)
        for name in self.queues.engines:
            engine = self.engines.index(name)
            self.whole.counts[engine] = base[engine] + len(self.queues.keys(name))
        return parts

    def _first_loads(self, local: Mapping[Command, Mapping[str, Column]]) -> dict[Command, Any]:
        """The first fillings that nothing need come before; see prefetch.py."""
        keys = [
            self.order.rows(op).key
            for op in self.commands
            if isinstance(op, ComputeOp) and self.order.rows(op).count
        ]
        start = min((int(key[0]) for key in keys), default=0)
        loads: dict[Command, Any] = {}
        for op in self.commands:
            if not isinstance(op, MoveOp) or not op.loads or op.buffer.outer_buffer is not None:
                continue
            moves = [op, *self._followers(op)]
            main = [self.tensor(move.buffer.tensor_op).range for move in moves]
            if any(self.whole.hazards.written(self.machine.main, *ends) for ends in main):
                continue
            rows = self.order.rows(op)
            first = (self.order.visit(op.buffer, op) == 0) & (rows.key < start)
            for counts in local[op].values():
                first &= counts == 0
            if first.any():
                loads[op] = first
        return loads

    def _waits(
        self, op: Command, uses: Sequence[Use], local: Mapping[str, Column], base: Mapping[int, int]
    ) -> dict[str, Any]:
        """The wait fields: the tile program's waits, and those for earlier kernels."""
        own = self.engines.index(op.engine.data)
        count = self.order.rows(op).count
        waits = self.whole.hazards.waits(uses, own, count)
        for name, numbers in local.items():
            other = self.engines.index(name)
            shifted = np.where(numbers > 0, numbers + base[other], 0)
            waits[other] = np.maximum(shifted, waits[other]) if other in waits else shifted
        return {f"wait.{self.engines[o]}": counts for o, counts in waits.items() if o != own}

    def _uses(self, op: Command) -> list[Use]:
        """Return the parts of memories that a command uses, in all its executions."""
        if isinstance(op, MoveOp):
            moves = [op, *(other for other in self._followers(op))]
            return [use for move in moves for use in self._move_uses(move)]
        uses: list[Use] = []
        for stage in op.stages:
            for value in stage.inputs:
                if isinstance(value.owner, BufferOp):
                    uses += self._slot_uses(value.owner, op, write=False)
        if isinstance(op.output.owner, BufferOp):
            uses += self._slot_uses(op.output.owner, op, write=True)
        for slot in self._addresses.values():
            uses.append(Use(TABLES, slot, slot + TABLE_SLOT, False))
        return uses

    def _slot_uses(self, buffer: BufferOp, op: Command, *, write: bool) -> list[Use]:
        """Which executions use which slot of a buffer."""
        place = self.buffer(buffer)
        slot = self.order.visit(buffer, op) % buffer.places
        return [
            Use(
                place.memory,
                place.address + number * place.bytes,
                place.address + (number + 1) * place.bytes,
                write,
                np.flatnonzero(slot == number),
            )
            for number in range(buffer.places)
        ]

    def _followers(self, op: MoveOp) -> list[MoveOp]:
        return [
            other
            for other in self.queues.commands
            if isinstance(other, MoveOp) and other.joined is not None and leader_of(other) is op
        ]

    def _move_uses(self, move: MoveOp) -> list[Use]:
        place = self.buffer(move.buffer)
        inner = self._slot_uses(move.buffer, move, write=move.loads)
        outer = move.buffer.outer_buffer
        if outer is not None:
            return [*inner, *self._slot_uses(outer, move, write=not move.loads)]
        tensor = self.tensor(move.buffer.tensor_op)
        boxes = place.read_by(move)
        footprint = Footprint(tensor, boxes.clamped_start, boxes.clamped_size)
        main = Use(self.machine.main, *tensor.range, not move.loads, footprint=footprint)
        return [*inner, main]

    def _outer(self, op: MoveOp) -> TensorPlace | BufferPlace:
        """Place of what a move's buffer is of."""
        outer = op.buffer.outer_buffer
        return self.tensor(op.buffer.tensor_op) if outer is None else self.buffer(outer)

    def _move_instruction(self, op: MoveOp) -> Instruction:
        outer = op.buffer.outer_buffer
        memory = self.machine.main if outer is None else outer.memory
        ends = (memory, op.buffer.memory) if op.loads else (op.buffer.memory, memory)
        move = self.machine.move(*ends)
        if op.transform is None:
            return self.whole.instructions.for_move(move)
        return self.whole.instructions.for_move(move, op.transform.data)

    def _move(self, op: MoveOp) -> tuple[Instruction, dict[str, Any]]:
        place, outer = self.buffer(op.buffer), self._outer(op)
        instruction = self._move_instruction(op)
        followers = self._followers(op)
        if op.buffer.gathers is not None:
            return instruction, gather_columns(op, self.order, place, outer)
        joined: tuple[MoveOp, BufferPlace, TensorPlace | BufferPlace] | None = None
        if followers:
            other = followers[0]
            if len(followers) > 1 or self.buffer(other.buffer).memory != place.memory:
                raise refuse(
                    "lower-joined",
                    "a transfer carries one more run, into the same memory",
                    place.name,
                )
            joined = other, self.buffer(other.buffer), self._outer(other)
        columns = transfer_columns(op, self.order, place, outer, joined)
        if op.buffer.converts:  # the elements of both ends are the machine's own
            del columns["element"]
            if self.machine.fixed_bits:
                kinds = op.buffer.result.type.of, op.buffer.outer_type
                columns["shift"] = fraction_of(kinds[0]) - fraction_of(kinds[1])
        return instruction, columns

    def _compute(self, op: ComputeOp) -> tuple[Instruction, dict[str, Any]]:
        part = self.machine.primitive(op.primitive.data)
        instruction = self.instruction(op)
        context = Context(
            op,
            self.order,
            self.buffer,
            self.whole.instructions.machines[instruction.opcode],
            part,
            instruction,
            Tables(self._ask_table),
            self._content,
        )
        return instruction, lower_compute(context)

    def _content(self, op: TensorOp) -> Array:
        """The 16-bit elements of a weight, as they lie in its arena."""
        place, arena = self.tensor(op), "" if op.arena is None else op.arena.data
        data = self.whole.content.get(arena)
        if data is None:
            raise refuse("lower-place", "compressed weights have to be known", op.symbol.data)
        offset = place.address - self.whole.bases[arena]
        return np.ndarray(place.shape, np.int16, data.data, offset, place.strides)

    def _ask_table(self, data: bytes) -> Any:
        if data not in self._tables:
            self._tables.append(data)
        return _Table(data)


@dataclass(frozen=True)
class _Table:
    """Stands for the address of a table until the table has a slot."""

    data: bytes
