"""Uses see the definitions that they saw before in the registers of the machine."""

from __future__ import annotations

import pytest
from tests.targets.cambricon.lowering.test_tidy import Program

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.liveness import Block, assigned, blocks_of
from tilewright.targets.cambricon.statements import Statement, statement

Definition = tuple[int, int]
"""A statement and a register; -1 is what the register holds before all statements."""


def defined(code: list[Statement], at: int, lost: dict[int, list[Register]]) -> list[int]:
    """The registers that a statement writes."""
    own = code[at].written
    return [r.number for r in (*lost.get(id(code[at]), ()), *([own] if own else []))]


def reaching(
    code: list[Statement], blocks: list[Block], lost: dict[int, list[Register]]
) -> list[dict[int, set[Definition]]]:
    """Per statement, the definitions of every register that reach it."""
    registers = {r.number for one in code for r in one.operands if isinstance(r, Register)}
    registers |= {r.number for some in lost.values() for r in some}
    before = [{r: set[Definition]() for r in registers} for _ in code]
    before[0] = {r: {(-1, r)} for r in registers}
    again = True
    while again:
        again = False
        for block in blocks:
            for at in range(block.start, block.end):
                now = before[at] | {r: {(at, r)} for r in defined(code, at, lost)}
                following = [at + 1] if at + 1 < block.end else []
                if at + 1 == block.end:
                    following = [blocks[number].start for number in block.following]
                for other in following:
                    for r, some in now.items():
                        again = again or not some <= before[other][r]
                        before[other][r] |= some
    return before


def program(seed: int) -> tuple[list[Statement], dict[int, list[Register]]]:
    """A random program with sums of vectors, and a place where a load overwrites registers."""
    code = Program(seed).statements
    zero, one = Register(0), Register(1)
    middle = len(code) // 2
    place = Statement(remark="a load comes here")
    code[middle:middle] = [place, statement("VDOT.acc", Register(2), zero, one, one)]
    return code, {id(place): [Register(3), Register(4)]}


@pytest.mark.parametrize("seed", range(24))
def test_uses_read_in_new_registers_what_they_read_before(seed: int) -> None:
    code, lost = program(seed)
    blocks, numbers = blocks_of(code), assigned(code, lost)
    new_lost: dict[int, list[Register]] = {}
    found: list[Statement] = []
    for one in code:
        parts = (
            Register(numbers[p.number]) if isinstance(p, Register) else p for p in one.operands
        )
        found.append(one.having(tuple(parts)))
        if id(one) in lost:
            new_lost[id(found[-1])] = [Register(numbers[r.number]) for r in lost[id(one)]]
    old, new = reaching(code, blocks, lost), reaching(found, blocks, new_lost)

    def origins(at: int, register: int) -> set[int]:
        """The statements that a use sees, through copies to the same register, too."""
        told: set[int] = set()
        left = [one for one, _ in new[at][register]]
        while left:
            one = left.pop()
            if one not in told:
                told.add(one)
                copied = found[one].operands
                if one >= 0 and found[one].mnemonic == "SMOVE" and copied[0] == copied[1]:
                    left += [other for other, _ in new[one][register]]
        return told

    for at, one in enumerate(code):
        for _, register in one.reads:
            seen = {origin for origin, _ in old[at][register.number]}
            if -1 not in seen:
                assert seen <= origins(at, numbers[register.number])


def test_registers_that_are_alive_one_after_the_other_are_one() -> None:
    first, second, third = (Register(number) for number in (70, 80, 90))
    code = [
        statement("SMOVE", first, 1),
        statement("SADD", second, first, 1),
        statement("SADD", third, second, second),
        statement("SSTORE", third, third, 0),
    ]
    assert assigned(code, {}) == {70: 0, 80: 0, 90: 0}
