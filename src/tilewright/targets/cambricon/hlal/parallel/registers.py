"""Which registers statements read and write, and what is known of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tilewright.targets.cambricon.hlal.items import Instruction, Item, LabelMark, LabelUse
from tilewright.targets.cambricon.isa import BY_MNEMONIC, Register

Registers = frozenset[int]


def normal(one: Instruction) -> Instruction:
    """An instruction with all its operands: ``ssub $a, #1`` in full, CB's register first."""
    known = BY_MNEMONIC[one.mnemonic].operands
    parts = one.operands
    if len(parts) == 2 and len(known) == 3 and known[2].kind == "either":
        parts = (parts[0], *parts)
    elif one.mnemonic == "CB" and len(parts) == 2 and not isinstance(parts[0], Register):
        parts = (parts[1], parts[0])
    return one if parts is one.operands else replace(one, operands=parts)


def writes(items: Iterable[Item]) -> Registers:
    """Registers that statements write."""
    found: set[int] = set()
    for one in items:
        if isinstance(one, Instruction):
            found.update(_written(one))
    return frozenset(found)


def exposed(items: Iterable[Item]) -> Registers:
    """Registers whose value from before may be read: those read before a sure write."""
    found: set[int] = set()
    sure: set[int] = set()
    straight = True
    for one in items:
        if not isinstance(one, Instruction):
            straight = False  # what follows a label may be reached without what stands before
            continue
        found.update(_read(one) - sure)
        if straight:
            sure.update(_written(one))
        if one.mnemonic in ("J", "CB"):
            straight = False
    return frozenset(found)


def _written(one: Instruction) -> set[int]:
    one = normal(one)
    known = BY_MNEMONIC[one.mnemonic].operands
    return {
        part.number
        for part, operand in zip(one.operands, known, strict=False)
        if operand.written and isinstance(part, Register)
    }


def _read(one: Instruction) -> set[int]:
    one = normal(one)
    known = BY_MNEMONIC[one.mnemonic].operands
    return {
        part.number
        for part, operand in zip(one.operands, known, strict=False)
        if not operand.written and isinstance(part, Register)
    }


def renamed(items: Sequence[Item], names: Mapping[int, int]) -> list[Item]:
    """The statements with other registers."""
    found: list[Item] = []
    for one in items:
        if isinstance(one, Instruction):
            parts = tuple(
                Register(names.get(part.number, part.number))
                if isinstance(part, Register)
                else part
                for part in normal(one).operands
            )
            one = replace(one, operands=parts)
        found.append(one)
    return found


def constant_before(items: Sequence[Item], place: int, end: int, register: int) -> int | None:
    """The number that a register surely holds from ``place`` up to ``end``, if it is known.

    That is what the last SMOVE before ``place`` put there, if nothing else writes the register up
    to ``end`` and no branch goes around it.
    """
    for index in range(place - 1, -1, -1):
        one = items[index]
        if isinstance(one, Instruction) and register in _written(one):
            value = one.operands[1] if one.mnemonic == "SMOVE" else None
            later = writes(items[index + 1 : end])
            return value if isinstance(value, int) and register not in later else None
        if isinstance(one, LabelMark) and _entered(items, one, index):
            return None
    return None


def _entered(items: Sequence[Item], mark: LabelMark, place: int) -> bool:
    """Whether a branch leads to a label from before it; loops come from behind."""
    return any(
        isinstance(one, Instruction)
        and any(isinstance(part, LabelUse) and part.name == mark.name for part in one.operands)
        for one in items[:place]
    )
