"""Fewer scalar instructions for the same kernel: the pipeline issues one a cycle.

Between two products the pipeline has as many cycles as the products take; what it needs beyond them
is lost. The lowering writes each part of a kernel as if it stood alone, with a new register for
each value, so that numbers are filled in again and sums are copied in several places::

    loop:   SADD $R5, $R3, $R4                  after:  SMOVE $R9, #12288
            SMOVE $R7, $R5                      loop:   SADD $R7, $R3, $R4
            SMOVE $R1, #12288                           VMM ..., $R9, ...
            VMM ..., $R1, ...                           ...

- what nobody reads is left out;
- registers are those of the machine, as few as are found (liveness.py);
- numbers that loops need lie in those that are left, filled before all loops.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilewright.targets.cambricon.formats import REGISTERS
from tilewright.targets.cambricon.isa import BY_MNEMONIC, Immediate, Register
from tilewright.targets.cambricon.lowering.liveness import (
    Clobbers,
    assigned,
    labels_of,
    without_unread,
    written_by,
)
from tilewright.targets.cambricon.lowering.numbering import numbered
from tilewright.targets.cambricon.statements import Label, Part, Statement

PURE = frozenset(("SADD", "SSUB", "SMUL", "SMOVE", "SGT", "SE", "SAND", "SDIV"))
"""Instructions that do nothing but write a register."""

FOLDED: Mapping[str, Callable[..., int]] = {
    "SADD": operator.add,
    "SSUB": operator.sub,
    "SMUL": operator.mul,
    "SMOVE": int,
}
"""Instructions that are computed at compile time where their operands are constants."""

Uses = dict[int, list[tuple[int, int]]]
"""Register -> the statements that read it, and the places of their operands."""


@dataclass(frozen=True)
class Tidied:
    """The statements of a kernel, and the registers that remarks' places overwrite in them."""

    statements: list[Statement]
    clobbers: Clobbers
    registers: int
    """Registers that are alive together: more than the machine has where it cannot run them."""


def tidied(statements: Sequence[Statement], clobbers: Clobbers) -> Tidied:
    """The same computation in fewer instructions, and in as few registers as are found.

    Labels stand on lines of their own, and remarks stay the objects that they are. What needs more
    registers than the machine has is returned with their number, and goes no further.
    """
    code = without_unread(numbered(statements, PURE, clobbers), PURE, clobbers)
    numbers = assigned(code, clobbers)
    count = max(numbers.values(), default=-1) + 1
    if count > REGISTERS:
        return Tidied(code, {}, count)
    code = _fill_early(code, clobbers, numbers, range(count, REGISTERS))
    registers = [Register(number) for number in range(REGISTERS)]
    moved = {
        id(statement): [registers[numbers[register.number]] for register in clobbers[id(statement)]]
        for statement in code
        if id(statement) in clobbers
    }
    for at, statement in enumerate(code):
        if statement.operands:
            parts = (
                registers[numbers[part.number]] if isinstance(part, Register) else part
                for part in statement.operands
            )
            code[at] = statement.having(tuple(parts))
    # Copies of a register to itself do nothing.
    left = [x for x in code if x.mnemonic != "SMOVE" or x.operands[0] != x.operands[1]]
    return Tidied(left, moved, count)


def _uses(code: Sequence[Statement]) -> Uses:
    uses: Uses = {}
    for number, statement in enumerate(code):
        for place, register in statement.reads:
            uses.setdefault(register.number, []).append((number, place))
    return uses


def _writes(code: Sequence[Statement], clobbers: Clobbers) -> Counter[int]:
    """The number of statements that write each register."""
    return Counter(
        register.number for statement in code for register in written_by(statement, clobbers)
    )


# Numbers.


def _depths(code: Sequence[Statement]) -> list[int]:
    """Return the number of loops around each statement: branches back over it.

    Jumps lead back from what stands apart, and to the next tile: all of them are one loop. What
    stands apart is run in the loops that it leads back to.
    """
    labels = labels_of(code)
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


def _fill_early(
    code: list[Statement], clobbers: Clobbers, numbers: dict[int, int], free: Sequence[int]
) -> list[Statement]:
    """Numbers become immediates, or, in loops, lie in the machine's registers that are ``free``:
    these are added to ``numbers``."""
    values, uses, depths = _values(code, clobbers), _uses(code), _depths(code)
    wanted: dict[int, list[tuple[int, int]]] = {}
    worth: Counter[int] = Counter()
    for at, value in values.items():
        written = code[at].written
        assert written is not None
        for number, place in uses.get(written.number, ()):
            if _takes_number(code[number], place):
                _replace(code, number, place, Immediate(value))
            else:
                wanted.setdefault(value, []).append((number, place))
        if depths[at]:
            worth[value] += 8 ** depths[at]
    start: list[Statement] = []
    best = sorted((v for v in worth if v in wanted), key=lambda value: (-worth[value], value))
    new = max(numbers, default=-1) + 1
    for value, number in zip(best, free, strict=False):
        numbers[new] = number
        start.append(Statement("SMOVE", (Register(new), Immediate(value))))
        for at, place in wanted[value]:
            _replace(code, at, place, Register(new))
        new += 1
    return without_unread([*start, *code], PURE, clobbers)


def _takes_number(statement: Statement, place: int) -> bool:
    last = place == len(statement.operands) - 1
    return last and BY_MNEMONIC[statement.mnemonic].operands[place].kind == "either"


def _replace(code: list[Statement], at: int, place: int, part: Part) -> None:
    operands = list(code[at].operands)
    operands[place] = part
    code[at] = code[at].having(tuple(operands))


def _values(code: Sequence[Statement], clobbers: Clobbers) -> Mapping[int, int]:
    """The numbers that statements give, where they are known now and written by these alone."""
    writes = _writes(code, clobbers)
    known: dict[int, int] = {}
    values: dict[int, int] = {}
    # In the order of the text: a definition before its uses; other registers are not tracked.
    for number, statement in enumerate(code):
        fold, target = FOLDED.get(statement.mnemonic), statement.written
        if (
            fold is None
            or target is None
            or writes[target.number] > 1
            or any(statement.modifiers.values())
        ):
            continue
        operands = [
            part.value if isinstance(part, Immediate) else known.get(part.number)
            for part in statement.operands[1:]
            if isinstance(part, Immediate | Register)
        ]
        if None not in operands:
            value = fold(*operands)
            if -(1 << 31) <= value < 1 << 31:
                known[target.number] = values[number] = value
    return values
