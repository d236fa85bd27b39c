"""Fewer scalar instructions for the same kernel: the pipeline issues one a cycle.

Between two products the pipeline has as many cycles as the products take; what it needs beyond them
is lost. The lowering writes each part of a kernel as if it stood alone, so that numbers are filled
in again, copied and added up in several places. Five steps mend that, before::

    loop:   SADD $R5, $R3, #-1                  after:  SMOVE $R9, #12288
            SADD $R6, $R5, #1                           SMOVE $R10, #24576
            SMOVE $R7, $R6                      loop:   SMOVE $R7, $R3
            SMOVE $R1, #12288                           VMM ..., $R9, ...
            VMM ..., $R1, ...                           VMM ..., $R10, ...
            SADD $R2, $R1, #12288                       ...
            VMM ..., $R2, ...

- within a block: sums of sums with numbers become one, what has been computed is not again;
- numbers get registers of their own that nothing else needs, filled before all loops;
- registers are given out anew, so that some are left for that (colours.py);
- a result that is only copied is written where the copy goes;
- what nobody reads is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from tilewright.targets.cambricon.isa import BY_MNEMONIC, REGISTERS, Immediate, Register
from tilewright.targets.cambricon.lowering.colours import coloured
from tilewright.targets.cambricon.lowering.webs import (
    Block,
    Clobbers,
    Web,
    blocks_of,
    webs_of,
)
from tilewright.targets.cambricon.statements import Label, Part, Statement

PURE = frozenset(("SADD", "SSUB", "SMUL", "SMOVE", "SGT", "SE", "SAND", "SDIV"))
"""Instructions that do nothing but write a register."""

FOLDED = frozenset(("SADD", "SSUB", "SMUL", "SMOVE"))
"""Those that are computed now where their operands are known."""

Code = list[Statement | None]
"""Statements; None where one has been left out."""


@dataclass(frozen=True)
class Tidied:
    """The statements of a kernel, and the registers that remarks' places overwrite in them."""

    statements: list[Statement]
    clobbers: Clobbers
    registers: int
    """Registers that are alive together: more than the machine has where it cannot run them."""


def tidied(statements: Sequence[Statement], clobbers: Clobbers) -> Tidied:
    """The same computation in fewer instructions, and in as few registers as are found.

    Remarks stay the objects that they are. What needs more registers than the machine has is
    returned with their number, and goes no further.
    """
    code = list(statements)
    blocks = blocks_of(code)
    for block in blocks:
        _number(code, block, clobbers)
    webs = webs_of(code, blocks, clobbers)
    colouring = coloured(code, blocks, webs)
    if colouring.count > REGISTERS:
        return Tidied(colouring.code, {}, colouring.count)
    moved: dict[int, list[Register]] = {
        id(statement): [] for statement in code if id(statement) in clobbers
    }
    for web, colour in zip(webs, colouring.colours, strict=True):
        for number in web.defs:
            if id(code[number]) in moved:
                moved[id(code[number])].append(Register(colour))
    code = _fill_early(colouring.code, webs, range(colouring.count, REGISTERS))
    # Copies that are gone leave others, and what they were of, without a reader.
    while len(fewer := _without_copies(code, moved)) < len(code):
        code = fewer
    return Tidied(fewer, moved, colouring.count)


def _changed(statement: Statement, mnemonic: str, *operands: Part) -> Statement:
    return Statement(mnemonic, operands, {}, statement.label, statement.remark, statement.line)


def _plain(statement: Statement) -> bool:
    """Return True if an instruction has no modifiers, as published."""
    return not any(statement.modifiers.values())


# Within blocks.


def _number(code: list[Statement], block: Block, clobbers: Clobbers) -> None:
    """Local value numbering; in place."""
    version: Counter[int] = Counter()
    sums: dict[int, tuple[int, int, int]] = {}
    """Of a register: it holds another one's value, as of a version of that, and a number more."""
    known: dict[tuple[object, ...], tuple[int, int]] = {}
    """Where the value of an expression lies: a register, as of its version."""

    def set_to(register: int) -> None:
        version[register] += 1
        sums.pop(register, None)

    def base(register: int) -> tuple[int, int]:
        """A register and a number that make up another one's value."""
        entry = sums.get(register)
        if entry is None or version[entry[0]] != entry[1]:
            return register, 0
        return entry[0], entry[2]

    for number in range(block.start, block.end):
        statement = code[number]
        for register in clobbers.get(id(statement), ()):
            set_to(register.number)
        # Copies are read where they come from.
        for place, register in statement.reads:
            other, more = base(register.number)
            if more == 0 and other != register.number and not (statement.adds and place == 0):
                parts = list(statement.operands)
                parts[place] = Register(other)
                statement = code[number] = statement.having(tuple(parts))
        target = statement.written
        if target is None:
            continue
        if statement.mnemonic not in PURE or not _plain(statement):
            set_to(target.number)
            continue
        statement = code[number] = _summed(statement, base)
        first = statement.operands[1]
        key: tuple[object, ...] = (
            statement.mnemonic,
            *(
                (part.number, version[part.number]) if isinstance(part, Register) else part
                for part in statement.operands[1:]
            ),
        )
        held = known.get(key)
        if held is not None and version[held[0]] == held[1] and held[0] != target.number:
            statement = code[number] = _changed(statement, "SMOVE", target, Register(held[0]))
            first = statement.operands[1]
        sources = [part for part in statement.operands[1:] if isinstance(part, Register)]
        own = target in sources
        origin = base(first.number) if isinstance(first, Register) else None
        set_to(target.number)
        if own:
            continue
        if origin is not None and origin[0] != target.number:
            last = statement.operands[-1]
            if statement.mnemonic == "SMOVE":
                sums[target.number] = origin[0], version[origin[0]], origin[1]
            elif statement.mnemonic == "SADD" and isinstance(last, Immediate):
                sums[target.number] = origin[0], version[origin[0]], origin[1] + last.value
        if statement.mnemonic != "SMOVE":
            known[key] = target.number, version[target.number]


def _summed(statement: Statement, base: Callable[[int], tuple[int, int]]) -> Statement:
    """A sum with a number as the sum of what its first operand is made of."""
    if statement.mnemonic != "SADD":
        return statement
    target, first, last = statement.operands
    if not isinstance(last, Immediate) or not isinstance(first, Register):
        return statement
    other, more = base(first.number)
    if more == 0:
        return statement
    total = more + last.value
    if total == 0:
        return _changed(statement, "SMOVE", target, Register(other))
    if not -(1 << 31) <= total < 1 << 31:
        return statement
    return _changed(statement, "SADD", target, Register(other), Immediate(total))


# Numbers.


def _depths(code: Sequence[Statement]) -> list[int]:
    """Return the number of loops around each statement: branches back over it.

    Jumps lead back from what stands apart, and to the next tile: all of them are one loop. What
    stands apart is run in the loops that it leads back to.
    """
    labels = {
        statement.label: number
        for number, statement in enumerate(code)
        if statement.label is not None
    }
    change = {"J": [0] * (len(code) + 1), "CB": [0] * (len(code) + 1)}
    jumps: list[tuple[int, int]] = []
    for number, statement in enumerate(code):
        if statement.mnemonic in ("J", "CB"):
            target = statement.operands[-1]
            assert isinstance(target, Label)
            if labels[target.name] <= number:
                change[statement.mnemonic][labels[target.name]] += 1
                change[statement.mnemonic][number + 1] -= 1
            if statement.mnemonic == "J":
                jumps.append((number, labels[target.name]))
    tiles, loops = (list(accumulate(changes))[:-1] for changes in change.values())
    depths = [loop + (tile > 0) for tile, loop in zip(tiles, loops, strict=True)]
    start = 0
    for number, target in jumps:
        if target < start:
            for at in range(start, number + 1):
                depths[at] = max(depths[at], depths[target])
        start = number + 1
    return depths


def _fill_early(code: list[Statement], webs: Sequence[Web], free: Sequence[int]) -> list[Statement]:
    """Numbers in loops become immediates, or lie in registers that are free throughout."""
    values = _values(code, webs)
    depths = _depths(code)
    wanted: dict[int, list[tuple[int, int]]] = {}
    worth: dict[int, int] = {}
    for web in webs:
        value = values.get(web.defs[0]) if len(web.defs) == 1 and web.known else None
        if value is None:
            continue
        for number, place in web.uses:
            statement = code[number]
            kind = BY_MNEMONIC[statement.mnemonic].operands[place].kind
            if kind == "either" and place == len(statement.operands) - 1:
                parts = list(statement.operands)
                parts[place] = Immediate(value)
                code[number] = statement.having(tuple(parts))
            else:
                wanted.setdefault(value, []).append((number, place))
        inside = depths[web.defs[0]]
        if inside:
            worth[value] = worth.get(value, 0) + 8**inside
    start: list[Statement] = []
    best = sorted(worth, key=lambda value: (-worth[value], value))
    for value, number in zip((v for v in best if v in wanted), free, strict=False):
        register = Register(number)
        start.append(Statement("SMOVE", (register, Immediate(value))))
        for at, place in wanted[value]:
            parts = list(code[at].operands)
            parts[place] = register
            code[at] = code[at].having(tuple(parts))
    return [*start, *code]


def _values(code: Sequence[Statement], webs: Sequence[Web]) -> dict[int, int]:
    """The number that each statement gives, where it is known now."""
    web_of = {use: web for web in webs for use in web.uses}
    numbers: dict[int, int] = {}

    def operand(number: int, place: int) -> int | None:
        part = code[number].operands[place]
        if isinstance(part, Immediate):
            return part.value
        web = web_of.get((number, place))
        if web is None or not web.known or len(web.defs) != 1:
            return None
        return numbers.get(web.defs[0])

    # In the order of the text: a definition in front of its uses, which others are not known by.
    for number, statement in enumerate(code):
        if statement.mnemonic not in FOLDED or not _plain(statement):
            continue
        known = [operand(number, place) for place in range(1, len(statement.operands))]
        if any(value is None for value in known):
            continue
        a, *rest = (value for value in known if value is not None)
        if statement.mnemonic == "SMOVE":
            numbers[number] = a
        else:
            (b,) = rest
            value = (
                a + b
                if statement.mnemonic == "SADD"
                else a - b
                if statement.mnemonic == "SSUB"
                else a * b
            )
            if -(1 << 31) <= value < 1 << 31:
                numbers[number] = value
    return numbers


# Copies, and what nobody reads.


def _without_copies(code: Sequence[Statement], clobbers: Clobbers) -> list[Statement]:
    blocks = blocks_of(code)
    webs = webs_of(code, blocks, clobbers)
    lengths = [block.end - block.start for block in blocks]
    block_of = np.repeat(np.arange(len(blocks)), lengths).tolist()
    web_at = {number: web for web in webs for number in web.defs}
    left: Code = list(code)
    for web in webs:
        if len(web.defs) == 1 and web.known and len(web.uses) == 1:
            (at,), ((copy, _),) = web.defs, web.uses
            near = at < copy and block_of[at] == block_of[copy]
            if near and _join(left, at, copy, clobbers):
                further = web_at[copy]
                further.defs[further.defs.index(copy)] = at
                web_at[at] = further
                web.defs = []
    _leave_out(left, webs)
    return [statement for statement in left if statement is not None]


def _join(code: Code, at: int, copy: int, clobbers: Clobbers) -> bool:
    """Write a result where its only use copies it to, if nobody needs that place in between."""
    source, move = code[at], code[copy]
    if source is None or move is None or move.mnemonic != "SMOVE":
        return False
    if source.mnemonic not in PURE or move.operands[1] != source.written:
        return False
    target = move.written
    assert target is not None
    for between in code[at + 1 : copy]:
        if between is None:
            continue
        if between.written == target or target in clobbers.get(id(between), ()):
            return False
        if any(register == target for _, register in between.reads):
            return False
    code[at] = source.having((target, *source.operands[1:]))
    code[copy] = _hollow(move)
    return True


def _hollow(statement: Statement) -> Statement | None:
    """Return a statement's label alone, without its instruction; None if it has none."""
    return Statement(label=statement.label) if statement.label is not None else None


def _leave_out(code: Code, webs: Sequence[Web]) -> None:
    """Leave out instructions whose results nobody reads, and copies to themselves."""
    read_by: dict[int, list[int]] = {}
    uses = [len(web.uses) for web in webs]
    for place, web in enumerate(webs):
        for number, _ in web.uses:
            read_by.setdefault(number, []).append(place)
    waiting = [place for place, count in enumerate(uses) if not count]
    while waiting:
        for number in webs[waiting.pop()].defs:
            statement = code[number]
            if statement is None or statement.mnemonic not in PURE:
                continue
            code[number] = _hollow(statement)
            for place in read_by.get(number, ()):
                uses[place] -= 1
                if not uses[place]:
                    waiting.append(place)
    for number, statement in enumerate(code):
        if (
            statement is not None
            and statement.mnemonic == "SMOVE"
            and statement.operands[0] == statement.operands[1]
        ):
            code[number] = _hollow(statement)
