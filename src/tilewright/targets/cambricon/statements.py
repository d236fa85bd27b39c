"""Statements: instructions with labels in place of offsets, as compiler and assembler make them.

    loop:
      MMV.acc.wide $R1, $R2, $R3, $R4, $R5   ;; a row of the kernel
      SSUB $R6, $R6, #1
      CB $R6, loop

``assemble_statements`` makes words of them, ``disassemble`` statements of words, ``to_text`` the
text above, which the assembler reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.targets.cambricon.formats import Instruction
from tilewright.targets.cambricon.isa import (
    BY_MNEMONIC,
    Decoded,
    Immediate,
    Register,
    decode,
    encode,
)

Words = NDArray[np.uint64]
"""A program: one word an instruction."""

MAX_PROBLEMS = 20
"""Problems that one refusal lists."""

MAX_WORDS = 1 << 24
"""Words of a program."""

LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Label:
    """A label as a branch's target."""

    name: str

    def __str__(self) -> str:
        return self.name


Part = Register | Immediate | Label


@dataclass(frozen=True)
class Statement:
    """One line: an instruction with what stands before and after it.

    Without a mnemonic it makes no word: a label (also one after the last instruction) or a remark
    alone.
    """

    mnemonic: str = ""
    """The mnemonic in capitals, without modifiers."""
    operands: tuple[Part, ...] = ()
    modifiers: Mapping[str, int] = field(default_factory=dict[str, int])
    label: str | None = None
    """Stands before the instruction."""
    remark: str = ""
    line: int | None = None
    """Line in the source text, counted from 1, for messages."""

    @property
    def written(self) -> Register | None:
        """The register that it writes."""
        place = places(self.mnemonic)[0]
        if place < 0:
            return None
        register = self.operands[place]
        assert isinstance(register, Register)
        return register

    @property
    def adds(self) -> bool:
        """True if the instruction adds to the register that it writes."""
        return bool(self.modifiers.get("acc")) and places(self.mnemonic)[0] >= 0

    @cached_property
    def reads(self) -> list[tuple[int, Register]]:
        """The registers that it reads, each with its operand's number.

        What it adds to is one that it writes, too.
        """
        target, among = places(self.mnemonic)
        operands = self.operands
        if target >= 0 and self.modifiers.get("acc"):
            among = (target, *among)
        parts = [(place, operands[place]) for place in among]
        return [(place, part) for place, part in parts if isinstance(part, Register)]

    def having(self, operands: tuple[Part, ...]) -> Statement:
        """The statement with other operands; ``dataclasses.replace`` takes far longer."""
        statement = object.__new__(Statement)
        statement.__dict__.update(self.__dict__, operands=operands)
        statement.__dict__.pop("reads", None)
        return statement


@cache
def places(mnemonic: str) -> tuple[int, tuple[int, ...]]:
    """The operand that an instruction writes (-1: none), and those that it may read."""
    if not mnemonic:
        return -1, ()
    operands = BY_MNEMONIC[mnemonic].operands
    written = next((n for n, operand in enumerate(operands) if operand.written), -1)
    reads = (
        n for n, operand in enumerate(operands) if operand.has_register and not operand.written
    )
    return written, tuple(reads)


def statement(
    text: str, *operands: Register | Immediate | Label | str | int, remark: str = ""
) -> Statement:
    """A statement in short: ``statement("MMV.acc.shift=7", R1, R2, R3, R4, R5)``.

    A number is an immediate, a string a label. Raises TilewrightError for an unknown modifier.
    """
    mnemonic, modifiers = _split(text)
    parts = tuple(
        [
            part
            if isinstance(part, Register)
            else Immediate(part)
            if isinstance(part, int)
            else Label(part)
            if isinstance(part, str)
            else part
            for part in operands
        ]
    )
    return Statement(mnemonic, parts, dict(modifiers), remark=remark)


@cache
def _split(text: str) -> tuple[str, dict[str, int]]:
    """``split_mnemonic`` of one of the lowering's few texts, not to be changed."""
    return split_mnemonic(text)


def split_mnemonic(text: str) -> tuple[str, dict[str, int]]:
    """``mmv.acc.shift=7`` as ``MMV`` and ``{"acc": 1, "shift": 7}``; letters of any case.

    Raises TilewrightError (``isa-unknown``, ``isa-modifier``).
    """
    mnemonic, *parts = text.split(".")
    instruction = BY_MNEMONIC.get(mnemonic.upper())
    if instruction is None:
        raise refuse("isa-unknown", f"{mnemonic[:40]!r} is no instruction")
    modifiers: dict[str, int] = {}
    for part in parts:
        name, equals, value = part.lower().partition("=")
        modifier = instruction.by_name.get(name)
        if modifier is None:
            known = ", ".join(instruction.by_name) or "none"
            raise refuse(
                "isa-modifier", f"{instruction.mnemonic} has no modifier {name[:40]!r}", help=known
            )
        if name in modifiers:
            raise refuse("isa-modifier", f"{name} is given twice")
        if modifier.is_flag != (not equals) or (equals and not re.fullmatch("-?[0-9]{1,9}", value)):
            wanted = name if modifier.is_flag else f"{name}=NUMBER"
            raise refuse("isa-modifier", f"{part[:40]!r} is not {wanted}")
        modifiers[name] = int(value) if equals else 1
    return instruction.mnemonic, modifiers


def assemble_statements(statements: Iterable[Statement], name: str = "program") -> Words:
    """Words of statements; labels become offsets from the branch.

    Raises TilewrightError with all problems, each at its line (or at the number of its word).
    """
    labels: dict[str, int] = {}
    problems: list[Problem] = []
    rows: list[Statement] = []
    for statement in statements:
        if statement.label is not None:
            reason = ""
            if statement.label in labels:
                reason = f"label {statement.label} is given twice"
            elif not LABEL.match(statement.label):
                reason = f"{statement.label[:40]!r} is no label"
            if reason:
                problems.append(Problem("asm-label", reason, _where(statement, name, len(rows))))
            labels[statement.label] = len(rows)
        if statement.mnemonic:
            rows.append(statement)
    if len(rows) > MAX_WORDS:
        raise refuse("asm-size", f"{len(rows)} words are more than {MAX_WORDS}", name)
    words = np.zeros(len(rows), np.uint64)
    for index, statement in enumerate(rows):
        if len(problems) >= MAX_PROBLEMS:
            break
        try:
            operands = tuple(_resolved(part, index, labels) for part in statement.operands)
            _check_target(statement, operands, index, len(rows))
            words[index] = encode(statement.mnemonic, operands, statement.modifiers)
        except TilewrightError as error:
            where = _where(statement, name, index)
            problems += [Problem(p.code, p.reason, where, p.help) for p in error.problems]
    if problems:
        raise TilewrightError(problems[:MAX_PROBLEMS])
    return words


def _where(statement: Statement, name: str, index: int) -> str:
    return f"{name}:{statement.line}" if statement.line is not None else f"{name}: word {index}"


def _resolved(part: Part, index: int, labels: Mapping[str, int]) -> Register | Immediate:
    if not isinstance(part, Label):
        return part
    if part.name not in labels:
        raise refuse("asm-label", f"there is no label {part.name[:40]!r}")
    return Immediate(labels[part.name] - index)


def _check_target(
    statement: Statement, operands: Sequence[Register | Immediate], index: int, size: int
) -> None:
    """Refuse a branch whose number or label lies outside the program; its end is inside."""
    known = BY_MNEMONIC.get(statement.mnemonic)
    if known is None or len(known.operands) != len(operands):
        return
    for operand, part in zip(known.operands, operands, strict=True):
        if operand.kind == "target" and isinstance(part, Immediate):
            target = index + part.value
            if not 0 <= target <= size:
                raise refuse(
                    "asm-branch", f"branches to word {target} of a program of {size} words"
                )


def disassemble(words: Words) -> list[Statement]:
    """Statements of words, with labels ``L5`` where branches lead to word 5.

    Raises TilewrightError (``isa-word``) at the first word that is no instruction.
    """
    decoded: list[Decoded] = []
    for index, word in enumerate(np.asarray(words, np.uint64).tolist()):
        try:
            decoded.append(decode(word))
        except TilewrightError as error:
            raise refuse("isa-word", error.problems[0].reason, f"word {index}") from None
    found = [_target(each.instruction, each.operands, at) for at, each in enumerate(decoded)]
    targets = {word: f"L{word}" for word in found if word is not None and 0 <= word <= len(decoded)}
    statements: list[Statement] = []
    for index, (instruction, target) in enumerate(zip(decoded, found, strict=True)):
        parts: tuple[Part, ...] = instruction.operands
        if target in targets:
            parts = (*instruction.operands[:-1], Label(targets[target]))
        label = targets.get(index)
        statements.append(
            Statement(instruction.instruction.mnemonic, parts, instruction.modifiers, label)
        )
    if len(decoded) in targets:
        statements.append(Statement(label=targets[len(decoded)]))
    return statements


def _target(instruction: Instruction, operands: Sequence[Any], index: int) -> int | None:
    if instruction.operands[-1].kind == "target" and isinstance(operands[-1], Immediate):
        return index + operands[-1].value
    return None


def to_text(statements: Iterable[Statement]) -> str:
    """The text of statements, one a line; labels have lines of their own."""
    return "".join(f"{line}\n" for line in text_lines(statements))


def text_lines(statements: Iterable[Statement]) -> Iterator[str]:
    """The lines of ``to_text``."""
    for statement in statements:
        if statement.label is not None:
            yield f"{statement.label}:"
        remark = f";; {' '.join(statement.remark.split())}" if statement.remark.strip() else ""
        if statement.mnemonic:
            operands = ", ".join(str(part) for part in statement.operands)
            line = f"  {mnemonic_text(statement)} {operands}"
            yield f"{line}  {remark}".rstrip()
        elif remark:
            yield remark


def mnemonic_text(statement: Statement) -> str:
    """The mnemonic with its modifiers, in the order of their definition."""
    known = BY_MNEMONIC.get(statement.mnemonic)
    names = [*known.by_name] if known is not None else [*statement.modifiers]
    parts = [statement.mnemonic]
    for name in names:
        value = statement.modifiers.get(name, 0)
        if value:
            flag = known is not None and known.by_name[name].is_flag
            parts.append(name if flag else f"{name}={value}")
    return ".".join(parts)
