"""The registers that are alive together in a kernel's code, and those of the machine for them.

The lowering takes a new register for each value. A register is alive from where it is written to
where it is read last; two registers that are never alive together may be one of the machine's. Sets
of registers are integers: bit ``n`` stands for register ``n``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.statements import Label, Statement

Clobbers = Mapping[int, Sequence[Register]]
"""Registers that a remark's place overwrites, by the remark's identity: a load goes there later."""


@dataclass(frozen=True)
class Block:
    """Statements from ``start`` to before ``end`` that run one after the other."""

    start: int
    end: int
    following: tuple[int, ...]
    """Numbers of the blocks that may come next."""


def labels_of(code: Sequence[Statement]) -> dict[str, int]:
    """The numbers of the statements that are labels."""
    return {line.label: number for number, line in enumerate(code) if line.label is not None}


def blocks_of(code: Sequence[Statement]) -> list[Block]:
    """The blocks in their order."""
    labels = labels_of(code)
    starts = {0, *labels.values()}
    starts |= {n + 1 for n, statement in enumerate(code) if statement.mnemonic in ("J", "CB")}
    bounds = sorted(start for start in starts if start < len(code))
    block_at = {start: number for number, start in enumerate(bounds)}
    blocks: list[Block] = []
    for start, end in zip(bounds, [*bounds[1:], len(code)], strict=True):
        last = code[end - 1]
        following: list[int] = []
        if last.mnemonic in ("J", "CB"):
            target = last.operands[-1]
            assert isinstance(target, Label)
            following.append(block_at[labels[target.name]])
        if last.mnemonic != "J" and end < len(code):
            following.append(block_at[end])
        blocks.append(Block(start, end, tuple(following)))
    return blocks


def written_by(statement: Statement, clobbers: Clobbers) -> Sequence[Register]:
    """The registers that a statement, or what goes to its place later, writes."""
    target = statement.written
    return clobbers.get(id(statement), ()) if target is None else (target,)


def assigned(code: Sequence[Statement], clobbers: Clobbers) -> dict[int, int]:
    """A register of the machine for each one of the code, the first that is free where it is first
    written. A copy gets that of what it copies where that may be."""
    meeting, copies = _meeting(code, clobbers)
    numbers: dict[int, int] = {}
    members: list[int] = []
    blocked: list[int] = []
    """For each register of the machine, as bits: the registers that lie in it, and those that they
    meet."""
    for register, others in meeting.items():

        def fits(number: int, register: int = register, others: int = others) -> bool:
            return not (members[number] & others or blocked[number] >> register & 1)

        partners = (numbers[other] for other in copies.get(register, ()) if other in numbers)
        number = next(
            (n for n in (*partners, *range(len(members))) if fits(n)),
            len(members),
        )
        if number == len(members):
            members.append(0)
            blocked.append(0)
        numbers[register] = number
        members[number] |= 1 << register
        blocked[number] |= others
    return numbers


def _meeting(
    code: Sequence[Statement], clobbers: Clobbers
) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Registers, in the order of the text, with those that are alive where they are written; and
    with those that they are copies of, or that are copies of them."""
    meeting = {
        register.number: 0
        for statement in code
        for register in (*written_by(statement, clobbers), *(part for _, part in statement.reads))
    }
    copies: dict[int, list[int]] = {}
    blocks = blocks_of(code)
    for block, alive in zip(blocks, _alive_after(code, blocks, clobbers), strict=True):
        for statement in reversed(code[block.start : block.end]):
            written, _ = changes = _changes(statement, clobbers)
            others = alive | written
            if statement.mnemonic == "SMOVE" and statement.reads:
                (target,), source = written_by(statement, clobbers), statement.reads[0][1]
                copies.setdefault(target.number, []).append(source.number)
                copies.setdefault(source.number, []).append(target.number)
                # A copy holds what its source holds.
                others &= ~(1 << source.number)
            for register in written_by(statement, clobbers):
                meeting[register.number] |= others & ~(1 << register.number)
            alive = _before(alive, changes)
    return meeting, copies


def without_unread(
    code: Sequence[Statement], pure: Container[str], clobbers: Clobbers
) -> list[Statement]:
    """Leave out ``pure`` instructions whose results nobody reads."""
    left: list[Statement] = []
    blocks = blocks_of(code)
    after = _alive_after(code, blocks, clobbers)
    for block, alive in zip(reversed(blocks), reversed(after), strict=True):
        for statement in reversed(code[block.start : block.end]):
            changes = _changes(statement, clobbers)
            if statement.mnemonic not in pure or changes[0] & alive:
                left.append(statement)
                alive = _before(alive, changes)
    return left[::-1]


def _alive_after(
    code: Sequence[Statement], blocks: Sequence[Block], clobbers: Clobbers
) -> list[int]:
    """The registers that are alive after each block: read before they are written."""
    wanted = [0] * len(blocks)
    gone = [0] * len(blocks)
    for number, block in enumerate(blocks):
        for statement in reversed(code[block.start : block.end]):
            changes = _changes(statement, clobbers)
            gone[number] |= changes[0]
            wanted[number] = _before(wanted[number], changes)
    after = [0] * len(blocks)
    again = True
    while again:
        again = False
        for number in range(len(blocks) - 1, -1, -1):
            for following in blocks[number].following:
                after[number] |= wanted[following]
            before = wanted[number] | after[number] & ~gone[number]
            again |= before != wanted[number]
            wanted[number] = before
    return after


def _changes(statement: Statement, clobbers: Clobbers) -> tuple[int, int]:
    """The registers that a statement writes, and those that it reads."""
    written = read = 0
    for register in written_by(statement, clobbers):
        written |= 1 << register.number
    for _, register in statement.reads:
        read |= 1 << register.number
    return written, read


def _before(alive: int, changes: tuple[int, int]) -> int:
    """The registers that are alive before a statement, given those that are alive after it."""
    written, read = changes
    return alive & ~written | read
