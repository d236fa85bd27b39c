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
from tilewright.targets.cambricon.hlal.parse import parse
from tilewright.targets.cambricon.hlal.rules import Sizes
from tilewright.targets.cambricon.hlal.syntax import Node, Place
from tilewright.targets.cambricon.hlal.values import Scope
from tilewright.targets.cambricon.isa import BY_OPCODE
from tilewright.targets.cambricon.statements import (
    MAX_PROBLEMS,
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
    """For every word, its own line, then the calls that led to it, the program's line last."""
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
    expanded = expand(code, definitions, data, sizes, base=base, barriers=barriers)
    problems += expanded.problems
    if problems:
        raise TilewrightError(problems[:MAX_PROBLEMS])
    words = assemble_statements(expanded.statements, name)
    return Program(
        name, tuple(expanded.statements), words, base, data, tuple(expanded.relocations),
        tuple(expanded.places), expanded.most_vsm, expanded.most_msm,
    )  # fmt: skip


def _misplaced(node: Node, reason: str) -> TilewrightError:
    return TilewrightError(Problem("hlal-section", f"{node.at.text!r} {reason}", str(node.at)))
