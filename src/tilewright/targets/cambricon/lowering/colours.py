"""Registers for webs: as few as the webs that are alive at the same time need.

The lowering gives registers out by the structure of its code; a web is alive for less. Given out
anew (greedily, those that meet most others first), they leave registers for numbers that would be
filled in again in every loop. A copy gets the register of what it copies where that may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.webs import Block, Web, table_of
from tilewright.targets.cambricon.statements import Part, Statement, places


@dataclass(frozen=True)
class Coloured:
    """Statements with registers given out anew."""

    code: list[Statement]
    colours: list[int]
    """The register of every web."""

    @property
    def count(self) -> int:
        """The number of registers that the colouring takes, from the first one on."""
        return max(self.colours, default=-1) + 1


def coloured(code: Sequence[Statement], blocks: Sequence[Block], webs: Sequence[Web]) -> Coloured:
    """The statements in as few registers as a greedy colouring finds."""
    from tilewright.targets.cambricon.lowering.flow import colours_of_webs  # loads numba

    defs = [(at, number) for number, web in enumerate(webs) for at in web.defs]
    uses = [(at, number) for number, web in enumerate(webs) for at, _ in web.uses]
    colouring = colours_of_webs(
        table_of(blocks),
        *_by_statement(defs, len(code)),
        *_by_statement(uses, len(code)),
        np.array([statement.mnemonic == "SMOVE" for statement in code], np.int64),
        len(webs),
    )
    colours = colouring.tolist()
    operands: dict[int, list[Part]] = {}
    for web, colour in zip(webs, colours, strict=True):
        if colour == web.register:
            continue
        register = Register(colour)
        for at in web.defs:
            place = places(code[at].mnemonic)[0]
            if place >= 0:
                operands.setdefault(at, [*code[at].operands])[place] = register
        for at, place in web.uses:
            operands.setdefault(at, [*code[at].operands])[place] = register
    statements = list(code)
    for at, parts in operands.items():
        statements[at] = statements[at].having(tuple(parts))
    return Coloured(statements, colours)


def _by_statement(
    pairs: Sequence[tuple[int, int]], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Webs in the order of their statements, and behind which of them each statement's end."""
    at, web = (np.array(row, np.int64) for row in zip(*pairs, strict=True))
    order = np.argsort(at, kind="stable")
    return web[order], np.cumsum(np.bincount(at, minlength=count))
