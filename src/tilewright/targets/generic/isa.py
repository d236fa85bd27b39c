"""Instruction sets: derived from a machine's description, one instruction per move and primitive.

Each instruction states in one place its name, opcode, fields, engine and family; the family
(families/) states what instructions of its kind mean and what they touch. Words, assembler,
disassembler, simulators and the manual are all made from these definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilewright.codegen import words
from tilewright.codegen.words import Field, lay_out
from tilewright.errors import refuse
from tilewright.machine import Machine, Move, Primitive
from tilewright.machine.numbers import seen_by
from tilewright.targets.generic.families import FAMILIES, family_of
from tilewright.targets.generic.families.ordering import carried
from tilewright.targets.generic.family import Family

UNIT_BITS = 64
OPCODE = Field("opcode", 8, "which instruction")
WAIT_BITS = 28
WORD_STEP = 32
"""Words are a multiple of this many bytes."""


@dataclass(frozen=True)
class Instruction(words.Instruction):
    """One instruction: what it is called, who runs it, and how it is encoded.

    Its meaning is one sentence; the family says more.
    """

    family: Family
    engine: int
    """Index of the engine in ``machine.engines``."""
    move: Move | None = None
    primitive: Primitive | None = None
    operations: tuple[str, ...] = ()
    """Anchor operations that it computes."""


@dataclass(frozen=True)
class InstructionSet(words.InstructionSet[Instruction]):
    """All instructions of one machine: words of as many units each."""

    machine: Machine = field(kw_only=True)

    @property
    def word_bytes(self) -> int:
        """Bytes of a word."""
        return self.instructions[0].units * UNIT_BITS // 8

    @cached_property
    def machines(self) -> dict[int, Machine]:
        """By opcode, the machine with the numbers of the instruction's primitive."""
        return {
            instruction.opcode: self.machine
            if instruction.primitive is None
            else seen_by(self.machine, instruction.primitive)
            for instruction in self.instructions
        }

    def for_move(self, move: Move, transform: str = "transfer") -> Instruction:
        """The instruction that performs a move of the machine, and what it does on the way."""
        return next(o for o in self.instructions if o.move == move and o.family.name == transform)

    def for_compute(self, primitive: str, operation: str) -> Instruction:
        """The instruction that computes an anchor operation with a primitive.

        Raises TilewrightError (``isa-operation``) if the set has none.
        """
        for instruction in self.instructions:
            part = instruction.primitive
            if part is not None and part.name == primitive and operation in instruction.operations:
                return instruction
        raise refuse(
            "isa-operation", f"{self.machine.name}: {primitive} has no instruction for {operation}"
        )


def derive(machine: Machine, opcodes: Mapping[str, int] | None = None) -> InstructionSet:
    """The instruction set of a machine.

    Every move, each of its transforms and, for each primitive, every family of its operations
    becomes an instruction. Where engines signal one another, each has instructions to signal and to
    wait, and all have a barrier.
    Field widths follow from the sizes of the memories. ``opcodes`` fixes the opcodes of the named
    instructions; the others are numbered in the order of the description. Words have
    ``machine.instruction_bytes``, or more if the fields need it. Raises TilewrightError.
    """
    fixed = dict(opcodes or {})
    instructions: list[Instruction] = []
    engines = [engine.name for engine in machine.engines]
    next_opcode = 1

    transfer = FAMILIES["transfer"]

    def add(
        mnemonic: str,
        engine: str,
        family: Family,
        fields: tuple[Field, ...],
        part: Move | Primitive | None,
        operations: tuple[str, ...] = (),
    ) -> None:
        nonlocal next_opcode
        if mnemonic not in fixed:
            while next_opcode in fixed.values():
                next_opcode += 1
            fixed[mnemonic] = next_opcode
        if any(instruction.mnemonic == mnemonic for instruction in instructions):
            raise refuse("isa-name", f"two parts of the machine are called {mnemonic}")
        if fixed[mnemonic] >= 1 << OPCODE.bits:
            raise refuse("isa-opcodes", f"{machine.name} has more than 255 instructions")
        waits = tuple(
            Field(f"wait.{other}", WAIT_BITS, f"commands of {other} that must have completed")
            for other in engines
            if other != engine and not machine.synchronisation.signals
        )
        carries = () if family.name in ("wait", "barrier") else carried(machine)
        form = lay_out([*waits, *carries, *fields], OPCODE.bits, UNIT_BITS)
        summary = family.summary
        if isinstance(part, Move) and family is transfer:
            summary = f"Copies boxes from {part.source} to {part.target}."
        instructions.append(
            Instruction(
                mnemonic,
                fixed[mnemonic],
                form,
                summary,
                family,
                engines.index(engine),
                part if isinstance(part, Move) else None,
                part if isinstance(part, Primitive) else None,
                operations,
            )
        )

    for move in machine.moves:
        add(move.name, move.engine, transfer, transfer.fields(machine, move), move)
        for name in move.transforms:
            family = FAMILIES[name]
            fields = family.fields(machine, move)
            add(f"{move.name}_{name}", move.engine, family, fields, move)
    for primitive in machine.primitives:
        seen = seen_by(machine, primitive)
        families: dict[str, list[str]] = {}
        for operation in primitive.operations:
            family = family_of(operation)
            if family is not None and seen.number.kind in family.kinds:
                families.setdefault(family.name, []).append(operation)
        for name, operations in families.items():
            family = FAMILIES[name]
            mnemonic = primitive.name if len(families) == 1 else f"{primitive.name}_{name}"
            fields = family.fields(seen, primitive)
            add(mnemonic, primitive.engine, family, fields, primitive, tuple(operations))
    if machine.synchronisation.signals:
        for engine in machine.engines:
            signal, wait = FAMILIES["signal"], FAMILIES["wait"]
            add(f"signal_{engine.name}", engine.name, signal, signal.fields(machine, engine), None)
            if machine.synchronisation.style != "tokens":
                add(f"wait_{engine.name}", engine.name, wait, wait.fields(machine, engine), None)
        add("barrier", engines[0], FAMILIES["barrier"], (), None)
    units = max(instruction.units for instruction in instructions)
    least = -(-units * UNIT_BITS // 8 // WORD_STEP) * WORD_STEP
    units = -(-max(least, machine.instruction_bytes) * 8 // UNIT_BITS)
    return InstructionSet(
        machine.name,
        OPCODE,
        0,
        tuple(
            replace(instruction, format=replace(instruction.format, units=units))
            for instruction in instructions
        ),
        help="smaller tiles, or a machine description with larger memories",
        machine=machine,
    )
