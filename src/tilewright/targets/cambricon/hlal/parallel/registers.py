"""Registers that statements read and write, with the values that are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tilewright.targets.cambricon.hlal.items import Instruction, Item, LabelMark, LabelUse
from tilewright.targets.cambricon.isa import BY_MNEMONIC, Register

Registers = frozenset[int]


def normal(instruction: Instruction) -> Instruction:
    """An instruction with all its operands: ``ssub $a, #1`` in full, CB's register first."""
    known = BY_MNEMONIC[instruction.mnemonic].operands
    parts = instruction.operands
    if len(parts) == 2 and len(known) == 3 and known[2].kind == "either":
        parts = (parts[0], *parts)
    elif instruction.mnemonic == "CB" and len(parts) == 2 and not isinstance(parts[0], Register):
        parts = (parts[1], parts[0])
    return instruction if parts is instruction.operands else replace(instruction, operands=parts)


def writes(items: Iterable[Item]) -> Registers:
    """Registers that statements write."""
    registers: set[int] = set()
    for item in items:
        if isinstance(item, Instruction):
            registers.update(_written(item))
    return frozenset(registers)


def exposed(items: Iterable[Item]) -> Registers:
    """Registers whose value from before may be read: those read before a sure write."""
    registers: set[int] = set()
    sure: set[int] = set()
    straight = True
    for item in items:
        if not isinstance(item, Instruction):
            straight = False  # what follows a label may be reached without what stands before
            continue
        registers.update(_read(item) - sure)
        if straight:
            sure.update(_written(item))
        if item.mnemonic in ("J", "CB"):
            straight = False
    return frozenset(registers)


def _written(instruction: Instruction) -> set[int]:
    instruction = normal(instruction)
    known = BY_MNEMONIC[instruction.mnemonic].operands
    return {
        part.number
        for part, operand in zip(instruction.operands, known, strict=False)
        if operand.written and isinstance(part, Register)
    }


def _read(instruction: Instruction) -> set[int]:
    instruction = normal(instruction)
    known = BY_MNEMONIC[instruction.mnemonic].operands
    return {
        part.number
        for part, operand in zip(instruction.operands, known, strict=False)
        if not operand.written and isinstance(part, Register)
    }


def renamed(items: Sequence[Item], names: Mapping[int, int]) -> list[Item]:
    """The statements with other registers."""
    result: list[Item] = []
    for item in items:
        if isinstance(item, Instruction):
            parts = tuple(
                Register(names.get(part.number, part.number))
                if isinstance(part, Register)
                else part
                for part in normal(item).operands
            )
            item = replace(item, operands=parts)
        result.append(item)
    return result


def constant_before(items: Sequence[Item], place: int, end: int, register: int) -> int | None:
    """The number that a register surely holds from ``place`` up to ``end``, if it is known.

    That is what the last SMOVE before ``place`` put there, if nothing else writes the register up
    to ``end`` and no branch goes around it.
    """
    for index in range(place - 1, -1, -1):
        item = items[index]
        if isinstance(item, Instruction) and register in _written(item):
            value = item.operands[1] if item.mnemonic == "SMOVE" else None
            later = writes(items[index + 1 : end])
            return value if isinstance(value, int) and register not in later else None
        if isinstance(item, LabelMark) and _entered(items, item, index):
            return None
    return None


def _entered(items: Sequence[Item], mark: LabelMark, place: int) -> bool:
    """Return True if a branch before a label leads to it; loops' branches stand after theirs."""
    return any(
        isinstance(item, Instruction)
        and any(isinstance(part, LabelUse) and part.name == mark.name for part in item.operands)
        for item in items[:place]
    )
