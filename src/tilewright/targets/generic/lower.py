"""Lowering: the tile programs of a network become one program of instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.commands import Commands
from tilewright.codegen.program.operands import Fields
from tilewright.codegen.program.word_files import encoded
from tilewright.codegen.words import Column, Units
from tilewright.errors import Refusals, refuse
from tilewright.ir.types import Array, fraction_of
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import Instruction, InstructionSet
from tilewright.targets.generic.lowering.carried import Carried
from tilewright.targets.generic.lowering.computes import Context, lower_compute
from tilewright.targets.generic.lowering.gather import gather_columns
from tilewright.targets.generic.lowering.hazards import Footprint, Hazards, Use
from tilewright.targets.generic.lowering.prefetch import Prefetch
from tilewright.targets.generic.lowering.steps import Tables
from tilewright.targets.generic.lowering.tables import TABLE_SLOT, TableMemory
from tilewright.targets.generic.program import Part
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, ProgramOp, TensorOp
from tilewright.tile.queues import Command, buffers_of, fills, followers_of
from tilewright.tile.races import Proof
from tilewright.tile.tensors import holding_memory

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
    """The symbols of the kernels."""
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
        chunks, starts, refused = [encoded(self.instructions, ())], [0], Refusals()
        for symbol, parts in zip(self.symbols, self.kernels, strict=True):
            named = [(part.instruction, part.columns, part.keys) for part in parts]
            with refused.of(symbol):
                chunks.append(encoded(self.instructions, named))
            starts.append(starts[-1] + sum(part.keys.size for part in parts))
        refused.check()
        return np.concatenate(chunks), starts


class KernelLowering(Commands):
    """The lowering of one kernel to commands.

    What does not depend on the kernels before is computed once, for all programs that have the
    kernel (``append_to``).
    """

    def __init__(self, whole: Lowering, program: ProgramOp) -> None:
        super().__init__(program, whole.machine, whole.bases)
        self.whole = whole
        self._tables: list[bytes] = []
        self._addresses: dict[bytes, int] = {}

    def instruction(self, op: Command) -> Instruction:
        """The instruction of a command."""
        if isinstance(op, MoveOp):
            transform = "transfer" if op.transform is None else op.transform.data
            return self.whole.instructions.for_move(self.move(op), transform)
        anchor = op.stages[0].operation.data
        return self.whole.instructions.for_compute(op.primitive.data, anchor)

    def transfer(self, op: MoveOp) -> Part:
        """The instructions of a move, without waits."""
        return Part(self.instruction(op), self.moved(op), self.order.rows(op).key)

    def fields(self) -> tuple[list[Part], dict[Command, tuple[Instruction, dict[str, Any]]]]:
        """The loads of function tables, which come first, and every command's instruction and
        fields, without waits."""
        # Which tables the kernel needs is known once its computes are lowered.
        computes, moves = self._computes, self._moves
        self._addresses, parts = self.whole.tables.load(self._tables)
        lowered: dict[Command, tuple[Instruction, dict[str, Any]]] = {}
        for op, (instruction, columns) in computes.items():
            lowered[op] = (
                instruction,
                {
                    name: self._addresses[value.data] if isinstance(value, _Table) else value
                    for name, value in columns.items()
                },
            )
        return parts, lowered | moves

    @cached_property
    def _computes(self) -> dict[Command, tuple[Instruction, dict[str, Any]]]:
        """The instructions and fields of computes, without the addresses of tables."""
        return {op: self._compute(op) for op in self.all if isinstance(op, ComputeOp)}

    @cached_property
    def _moves(self) -> dict[Command, tuple[Instruction, dict[str, Any]]]:
        """The instructions and fields of moves."""
        moves = [op for op in self.all if isinstance(op, MoveOp)]
        return {op: (self.instruction(op), dict(self.moved(op))) for op in moves}

    @cached_property
    def _own_uses(self) -> dict[Command, list[Use]]:
        """The parts of memories that commands use, but for tables."""
        return {op: self._uses(op) for op in self.all}

    @cached_property
    def _own_waits(self) -> dict[Command, Mapping[str, Column]]:
        """The waits for commands of the kernel itself."""
        return {op: self.queues.waits(op) for op in self.all}

    def append_to(self, whole: Lowering) -> None:
        """Append the kernel to another program. Raises TilewrightError."""
        self.whole = whole
        self.lower()

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
        """The kernel after a barrier, in order by its own signals."""
        carried = Carried(self, self.whole.signalled)
        barrier = self.whole.instructions.by_mnemonic["barrier"]
        parts = [Part(barrier, {}, np.full(1, FIRST - 1, np.int64))] if self.whole.kernels else []
        parts += loads
        if loads and not self._await(loads[0].instruction.engine):
            parts.append(Part(barrier, {}, np.full(1, FIRST, np.int64)))
        for op in self.all:
            instruction, columns = lowered[op]
            keys = self.order.rows(op).key
            parts.append(Part(instruction, columns | carried.fields(op), keys, op))
        parts += carried.parts(self.whole.instructions)
        return parts

    def _await(self, engine: int) -> bool:
        """Return True if all computes wait for something that an engine does in this kernel, and
        so for what it does before."""
        known, name = Proof(self.order, self.queues).clocks(), self.engines[engine]
        for op in self.all:
            if isinstance(op, ComputeOp) and op.engine.data != name and self.order.rows(op).count:
                done = known[op.engine.data].get(name)
                if done is None or not done[self.queues.position(op)[0]]:
                    return False
        return True

    def _counted(self, lowered: Mapping[Command, tuple[Instruction, dict[str, Any]]]) -> list[Part]:
        """The kernel beside the one before it, by counts of commands."""
        commands = self.all
        base = dict(self.whole.counts)
        tables = [Use(TABLES, s, s + TABLE_SLOT, False) for s in self._addresses.values()]
        uses = {
            op: [*own, *(tables if isinstance(op, ComputeOp) else ())]
            for op, own in self._own_uses.items()
        }
        local = self._own_waits
        prefetch = Prefetch(
            {op: self.order.rows(op).key for op in commands},
            {op: op.engine.data for op in commands},
            self._first_loads(local),
        )
        waits = {op: self._waits(op, uses[op], prefetch.waits(local[op]), base) for op in commands}
        parts: list[Part] = []
        for op in commands:
            instruction, columns = lowered[op]
            parts.append(Part(instruction, columns | waits[op], prefetch.keys[op], op))
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
            for op in self.all
            if isinstance(op, ComputeOp) and self.order.rows(op).count
        ]
        start = min((int(key[0]) for key in keys), default=0)
        loads: dict[Command, Any] = {}
        for op in self.all:
            if not isinstance(op, MoveOp) or not op.loads or op.buffer.outer_buffer is not None:
                continue
            moves = [op, *followers_of(op)]
            tensors = [move.buffer.tensor_op for move in moves]
            places = [(holding_memory(t, self.machine), *self.tensor(t).range) for t in tensors]
            if any(self.whole.hazards.written(*place) for place in places):
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
        engine = self.engines.index(op.engine.data)
        count = self.order.rows(op).count
        waits = self.whole.hazards.waits(uses, engine, count)
        for name, numbers in local.items():
            other = self.engines.index(name)
            shifted = np.where(numbers > 0, numbers + base[other], 0)
            waits[other] = np.maximum(shifted, waits[other]) if other in waits else shifted
        return {f"wait.{self.engines[o]}": counts for o, counts in waits.items() if o != engine}

    def _uses(self, op: Command) -> list[Use]:
        """Return the parts of memories but for tables that a command uses, in all its
        executions."""
        if isinstance(op, MoveOp):
            moves = [op, *followers_of(op)]
            return [use for move in moves for use in self._move_uses(move)]
        uses: list[Use] = []
        for buffer in buffers_of(op):
            uses += self._slot_uses(buffer, op, write=fills(op, buffer))
        return uses

    def _slot_uses(self, buffer: BufferOp, op: Command, *, write: bool) -> list[Use]:
        """The accesses of each slot of a buffer, with the executions that make them."""
        place = self.place(buffer)
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

    def _move_uses(self, move: MoveOp) -> list[Use]:
        place = self.place(move.buffer)
        inner = self._slot_uses(move.buffer, move, write=move.loads)
        outer = move.buffer.outer_buffer
        if outer is not None:
            return [*inner, *self._slot_uses(outer, move, write=not move.loads)]
        tensor = self.tensor(move.buffer.tensor_op)
        boxes = place.read_by(move)
        footprint = Footprint(tensor, boxes.clamped_start, boxes.clamped_size)
        memory = holding_memory(move.buffer.tensor_op, self.machine)
        main = Use(memory, *tensor.range, not move.loads, footprint=footprint)
        return [*inner, main]

    def moved(self, op: MoveOp) -> Fields:
        """The fields of a move; of one that gathers windows, or that converts, its own."""
        if op.buffer.gathers is not None:
            return gather_columns(op, self.order, self.place(op.buffer), self.outer(op.buffer))
        columns = super().moved(op)
        if op.buffer.converts:  # the elements of both ends are the machine's own
            del columns["element"]
            if self.machine.fixed_bits:
                kinds = op.buffer.result.type.of, op.buffer.outer_type
                columns["shift"] = fraction_of(kinds[0]) - fraction_of(kinds[1])
        return columns

    def _compute(self, op: ComputeOp) -> tuple[Instruction, dict[str, Any]]:
        part = self.machine.primitive(op.primitive.data)
        instruction = self.instruction(op)
        context = Context(
            op,
            self.order,
            self.place,
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
