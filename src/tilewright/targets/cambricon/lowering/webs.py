"""Webs of a kernel's statements: definitions of registers with the uses that they reach.

A web is a set of definitions and of uses that belong together: each use sees some of these
definitions and no other. Registers are given out anew all the time, so one register has many webs,
and each could as well lie in a register of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.statements import Label, Statement

Clobbers = Mapping[int, Sequence[Register]]
"""Registers that a remark's place overwrites, by the remark's identity: a load goes there later."""


@dataclass
class Web:
    """Definitions and uses that belong together."""

    register: int = 0
    """Where it lies."""
    defs: list[int] = field(default_factory=list[int])
    """Numbers of statements."""
    uses: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Numbers of statements, and of their operands."""
    known: bool = True
    """Whether all of its definitions are statements."""


@dataclass(frozen=True)
class Block:
    """Statements from ``start`` to before ``end`` that run one after the other."""

    start: int
    end: int
    following: tuple[int, ...]
    """Numbers of the blocks that may come next."""


def blocks_of(statements: Sequence[Statement]) -> list[Block]:
    """The blocks in their order."""
    starts = {0}
    for number, statement in enumerate(statements):
        if statement.label is not None:
            starts.add(number)
        if statement.mnemonic in ("J", "CB"):
            starts.add(number + 1)
    bounds = sorted(start for start in starts if start < len(statements))
    block_at = {start: number for number, start in enumerate(bounds)}
    labels = {
        statement.label: n for n, statement in enumerate(statements) if statement.label is not None
    }
    blocks: list[Block] = []
    for number, (start, end) in enumerate(zip(bounds, [*bounds[1:], len(statements)], strict=True)):
        last = statements[end - 1]
        following: list[int] = []
        if last.mnemonic in ("J", "CB"):
            target = last.operands[-1]
            assert isinstance(target, Label)
            following.append(block_at[labels[target.name]])
        if last.mnemonic != "J" and number + 1 < len(bounds):
            following.append(number + 1)
        blocks.append(Block(start, end, tuple(following)))
    return blocks


def webs_of(
    statements: Sequence[Statement], blocks: Sequence[Block], clobbers: Clobbers
) -> list[Web]:
    """The webs, in the order of their first definitions."""
    from tilewright.targets.cambricon.lowering.flow import webs_of_registers  # loads numba

    reads, read_ends, writes, write_ends, adds = (list[int]() for _ in range(5))
    defs: list[int] = []
    uses: list[tuple[int, int]] = []
    for number, statement in enumerate(statements):
        if clobbers and id(statement) in clobbers:
            writes += [register.number for register in clobbers[id(statement)]]
            defs += [number] * (len(writes) - len(defs))
        for place, register in statement.reads:
            reads.append(register.number)
            uses.append((number, place))
        if (target := statement.written) is not None:
            writes.append(target.number)
            defs.append(number)
        read_ends.append(len(reads))
        write_ends.append(len(writes))
        adds.append(statement.adds)
    ways = (np.array(row, np.int64) for row in (reads, read_ends, writes, write_ends, adds))
    write_web, read_web, known = webs_of_registers(table_of(blocks), *ways)
    webs = [Web(known=bool(flag)) for flag in known.tolist()]
    for web, register, number in zip(write_web.tolist(), writes, defs, strict=True):
        webs[web].register = register
        webs[web].defs.append(number)
    for web, use in zip(read_web.tolist(), uses, strict=True):
        if web >= 0:
            webs[web].uses.append(use)
    return webs


def table_of(blocks: Sequence[Block]) -> NDArray[np.int64]:
    """Blocks as flow.py has them."""
    rows = [(block.start, block.end, *(*block.following, -1, -1)[:2]) for block in blocks]
    return np.array(rows, np.int64).reshape(len(rows), 4)
