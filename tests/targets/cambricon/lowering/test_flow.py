"""Webs are what plain sets of reaching definitions make of them; colours part what meets."""

from __future__ import annotations

import pytest
from tests.targets.cambricon.lowering.test_tidy import Program

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.colours import coloured
from tilewright.targets.cambricon.lowering.webs import Block, blocks_of, webs_of
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


@pytest.mark.parametrize("seed", range(12))
def test_webs_join_what_reaches_one_use(seed: int) -> None:
    code, lost = program(seed)
    blocks = blocks_of(code)
    before = reaching(code, blocks, lost)
    # Every definition's web, as a set that all of its definitions share; and every web's uses.
    every = {(at, r) for at in range(len(code)) for r in defined(code, at, lost)}
    shared = {one: {one} for one in every | {one for some in before[0].values() for one in some}}
    uses: list[tuple[Definition, tuple[int, int]]] = []
    for at, one in enumerate(code):
        for place, register in one.reads:
            seen = set(before[at][register.number])
            uses.append((min(seen), (at, place)))
            if one.adds and register == one.written and place == 0:
                seen |= {(at, register.number)}
            together = set[Definition]().union(*(shared[other] for other in seen))
            for other in together:
                shared[other] = together
    webs = webs_of(code, blocks, lost)
    assert sum(len(web.defs) for web in webs) == len(every)
    for web in webs:
        expected = shared[web.defs[0], web.register]
        assert {(at, web.register) for at in web.defs} == expected & every
        assert web.known == (expected <= every)
        assert web.uses == [use for one, use in uses if one in expected]


@pytest.mark.parametrize("seed", range(12))
def test_uses_read_in_new_registers_what_they_read_before(seed: int) -> None:
    code, lost = program(seed)
    blocks = blocks_of(code)
    webs = webs_of(code, blocks, lost)
    found = coloured(code, blocks, webs)
    moved: dict[int, list[Register]] = {}
    for web, colour in zip(webs, found.colours, strict=True):
        for at in web.defs:
            if id(code[at]) in lost:
                moved.setdefault(id(code[at]), []).append(Register(colour))
    old, new = reaching(code, blocks, lost), reaching(found.code, blocks, moved)

    def origins(at: int, register: int) -> set[int]:
        """The statements that a use sees, through copies to the same register, too."""
        told: set[int] = set()
        left = [one for one, _ in new[at][register]]
        while left:
            one = left.pop()
            if one not in told:
                told.add(one)
                copied = found.code[one].operands
                if one >= 0 and found.code[one].mnemonic == "SMOVE" and copied[0] == copied[1]:
                    left += [other for other, _ in new[one][register]]
        return told

    for web, colour in zip(webs, found.colours, strict=True):
        for at, place in web.uses:
            assert found.code[at].operands[place] == Register(colour)
            if web.known:
                assert {one for one, _ in old[at][web.register]} <= origins(at, colour)
