"""The assembler: HLAL text to instruction words and the places of its data (4.4.1, figure 4.7).

Sections are separated; data get addresses; macros and blocks are expanded; barriers become
instructions; labels become offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.errors import Problem, TilewrightError
from tilewright.targets.cambricon.formats import NUMBER
from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.builtin import define, library
from tilewright.targets.cambricon.hlal.declare import DataSegment
from tilewright.targets.cambricon.hlal.expand import expand
from tilewright.targets.cambricon.hlal.items import (
    Instruction,
    Item,
    LabelMark,
    LabelUse,
    Sizes,
)
from tilewright.targets.cambricon.hlal.parse import parse
from tilewright.targets.cambricon.hlal.syntax import Node, Place
from tilewright.targets.cambricon.hlal.values import Address, Scope
from tilewright.targets.cambricon.isa import BY_MNEMONIC, BY_OPCODE, Immediate, Register, encode
from tilewright.targets.cambricon.statements import (
    MAX_PROBLEMS,
    Label,
    Statement,
    Words,
    assemble_statements,
)

CONSTANTS = ("tensor_buffer", "filter_buffer", "vsm_bytes", "msm_bytes", "lanes")
"""Names that every program knows: where the scratchpads begin, their bytes, the lanes."""


@dataclass(frozen=True)
class Program:
    """The assembler's result for one text: statements, words and data."""

    name: str
    statements: tuple[Statement, ...]
    words: Words
    """For data that begin at ``base``."""
    base: int
    data: DataSegment
    relocations: tuple[int, ...]
    """Words whose immediate is an address, and grows with ``base``."""
    places: tuple[tuple[Place, ...], ...]
    """Of every word: its own line, then the calls that led to it, the program's line last."""
    vsm_bytes: int
    msm_bytes: int
    """Most of each scratchpad that on-chip arrays take at a time."""

    def where(self, word: int) -> str:
        """The lines of a word, for messages."""
        if not 0 <= word < len(self.places):
            return f"{self.name}: word {word}"
        at, *calls = self.places[word]
        return f"{at}" + "".join(f" from {place}" for place in calls)

    def line(self, word: int) -> int:
        """The program's own line of a word, or 0."""
        return self.places[word][-1].line if 0 <= word < len(self.places) else 0

    def at(self, base: int) -> Words:
        """The words for data that begin at ``base`` in main memory."""
        words = self.words.copy()
        for index in self.relocations:
            word = int(words[index])
            low = BY_OPCODE[word >> 56].low(NUMBER.name)
            value = ((word >> low) + base - self.base) & 0xFFFFFFFF
            words[index] = np.uint64((word & ~(0xFFFFFFFF << low)) | (value << low))
        return words


def assemble(
    text: str,
    name: str,
    sizes: Sizes,
    *,
    base: int = 0,
    barriers: bool = True,
) -> Program:
    """Words and data of a text; raises TilewrightError with all problems it finds.

    ``base`` is the byte of main memory that data begin at. Without ``barriers`` no instruction is
    made of ``@barrier``: ACC-C's queue checks ranges, so that results stay the same.
    """
    definitions, defined = library(), set[str]()
    constants = (0, 0, sizes.vsm_bytes, sizes.msm_bytes, sizes.lanes)
    scope = Scope(outer=Scope(dict(zip(CONSTANTS, constants, strict=True))))
    data, code, problems = DataSegment(scope), list[Node](), list[Problem]()
    section = "code"
    for node in parse(text, name):
        if len(problems) >= MAX_PROBLEMS:
            break
        try:
            if isinstance(node, syntax.Section):
                section = node.name
            elif define(node, definitions, defined):
                pass
            elif section == "code" and not isinstance(node, syntax.Data):
                code.append(node)
            elif isinstance(node, syntax.Data | syntax.Scalar):
                if section == "code":
                    raise _misplaced(node, "belongs into .static_ro or .static_rw")
                data.add(node, section)
            else:
                raise _misplaced(node, "belongs into .code")
        except TilewrightError as error:
            problems += error.problems
    expansion = expand(code, definitions, data, sizes, barriers=barriers)
    problems += expansion.problems
    if problems:
        raise TilewrightError(problems[:MAX_PROBLEMS])
    statements, places, relocations = _statements(expansion.items, base)
    words = assemble_statements(statements, name)
    return Program(
        name, tuple(statements), words, base, data, tuple(relocations), tuple(places),
        expansion.most_vsm, expansion.most_msm,
    )  # fmt: skip


def _misplaced(node: Node, reason: str) -> TilewrightError:
    return TilewrightError(Problem("hlal-section", f"{node.at.text!r} {reason}", str(node.at)))


def _statements(
    items: list[Item], base: int
) -> tuple[list[Statement], list[tuple[Place, ...]], list[int]]:
    """Statements with labels and lines, the places of their words, and what is relocated."""
    statements: list[Statement] = []
    places: list[tuple[Place, ...]] = []
    relocations: list[int] = []
    problems: list[Problem] = []
    for item in items:
        if isinstance(item, LabelMark):
            statements.append(Statement(label=item.name))
            continue
        try:
            statement = _statement(item, base)
        except TilewrightError as error:
            problems += [_placed(problem, item.places) for problem in error.problems]
            if len(problems) >= MAX_PROBLEMS:
                break
            continue
        if any(isinstance(operand, Address) for operand in item.operands):
            relocations.append(len(places))
        statements.append(statement)
        places.append(item.places)
    if problems:
        raise TilewrightError(problems)
    return statements, places, relocations


def _placed(problem: Problem, places: tuple[Place, ...]) -> Problem:
    at, *calls = places
    where = str(at) + "".join(f" from {place}" for place in calls)
    return Problem(problem.code, f"{at.text!r}: {problem.reason}", where, problem.help)


def _statement(item: Instruction, base: int) -> Statement:
    known = BY_MNEMONIC[item.mnemonic]
    parts: list[Register | Immediate | Label] = []
    for operand in item.operands:
        if isinstance(operand, Register):
            parts.append(operand)
        elif isinstance(operand, LabelUse):
            parts.append(Label(operand.name))
        elif isinstance(operand, Address):
            parts.append(Immediate(operand.offset + base))
        else:
            parts.append(Immediate(operand))
    if item.mnemonic == "CB" and len(parts) == 2 and isinstance(parts[1], Register):
        if not isinstance(parts[0], Register):
            parts.reverse()  # listing 4.2 writes CB label, $R
    elif len(parts) == 2 and len(known.operands) == 3 and known.operands[2].kind == "either":
        parts.insert(0, parts[0])  # listing 4.2 writes ssub $R4, #1
    modifiers: dict[str, int] = {}
    for name, value in item.modifiers:
        modifier = known.by_name.get(name)
        if modifier is not None and not modifier.is_flag and value is None:
            raise TilewrightError(Problem("isa-modifier", f"{name} needs a value: {name}=1"))
        if name in modifiers:
            raise TilewrightError(Problem("isa-modifier", f"{name} is given twice"))
        modifiers[name] = 1 if value is None else value
    trial = [Immediate(0) if isinstance(part, Label) else part for part in parts]
    encode(item.mnemonic, trial, modifiers)
    line = item.places[-1].line if item.places else None
    return Statement(item.mnemonic, tuple(parts), modifiers, line=line)
