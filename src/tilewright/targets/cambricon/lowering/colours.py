"""Registers for webs: as few as the webs that are alive at the same time need.

The lowering gives registers out by the structure of its code; a web is alive for less. Given out
anew (greedily, those that meet most others first), they leave registers for numbers that would be
filled in again in every loop. A copy gets the register of what it copies where that may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.webs import Block, Web, places
from tilewright.targets.cambricon.statements import Statement


@dataclass(frozen=True)
class Coloured:
    """Statements with registers given out anew."""

    code: list[Statement]
    colours: list[int]
    """The register of every web."""

    @property
    def count(self) -> int:
        """How many registers they take, from the first one on."""
        return max(self.colours, default=-1) + 1


def coloured(code: Sequence[Statement], blocks: Sequence[Block], webs: Sequence[Web]) -> Coloured:
    """The statements in as few registers as a greedy colouring finds."""
    defined: dict[int, list[int]] = {}
    used: dict[int, list[int]] = {}
    for number, web in enumerate(webs):
        for at in web.defs:
            defined.setdefault(at, []).append(number)
        for at, _ in web.uses:
            used.setdefault(at, []).append(number)
    copies = {
        at: used[at][0]
        for at, one in enumerate(code)
        if one.mnemonic == "SMOVE" and at in used and at in defined
    }
    meeting = _meeting(blocks, defined, used, copies, len(webs))
    colours = _colours(meeting, [(defined[at][0], web) for at, web in copies.items()])
    made = list(code)
    for web, colour in zip(webs, colours, strict=True):
        register = Register(colour)
        for at in web.defs:
            place = places(made[at].mnemonic)[0]
            if place >= 0:
                made[at] = _with(made[at], place, register)
        for at, place in web.uses:
            made[at] = _with(made[at], place, register)
    return Coloured(made, colours)


def _with(one: Statement, place: int, register: Register) -> Statement:
    if one.operands[place] == register:
        return one
    parts = list(one.operands)
    parts[place] = register
    return replace(one, operands=tuple(parts))


def _meeting(
    blocks: Sequence[Block],
    defined: dict[int, list[int]],
    used: dict[int, list[int]],
    copies: dict[int, int],
    count: int,
) -> list[int]:
    """For every web the webs that are alive where it is defined, and the other way round."""
    coming = [0] * len(blocks)
    going = [0] * len(blocks)
    again = True
    while again:
        again = False
        for number in range(len(blocks) - 1, -1, -1):
            block = blocks[number]
            alive = 0
            for one in block.following:
                alive |= coming[one]
            going[number] = alive
            for at in range(block.end - 1, block.start - 1, -1):
                for web in defined.get(at, ()):
                    alive &= ~(1 << web)
                for web in used.get(at, ()):
                    alive |= 1 << web
            if alive != coming[number]:
                coming[number] = alive
                again = True
    meeting = [0] * count
    for block, alive in zip(blocks, going, strict=True):
        for at in range(block.end - 1, block.start - 1, -1):
            here = 0
            for web in defined.get(at, ()):
                here |= 1 << web
            beside = alive | here
            if at in copies:
                # A copy holds what its source holds.
                beside &= ~(1 << copies[at])
            for web in defined.get(at, ()):
                meeting[web] |= beside & ~(1 << web)
            alive &= ~here
            for web in used.get(at, ()):
                alive |= 1 << web
    for web in range(count):
        for other in _bits(meeting[web]):
            meeting[other] |= 1 << web
    return meeting


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        mask ^= low
        yield low.bit_length() - 1


def _colours(meeting: Sequence[int], copies: Sequence[tuple[int, int]]) -> list[int]:
    """A colour for every web that none of those that it meets has."""
    partners: dict[int, list[int]] = {}
    for a, b in copies:
        partners.setdefault(a, []).append(b)
        partners.setdefault(b, []).append(a)
    found = [-1] * len(meeting)
    order = sorted(range(len(meeting)), key=lambda web: (-meeting[web].bit_count(), web))
    for web in order:
        taken = {found[other] for other in _bits(meeting[web])}
        wanted = (found[other] for other in partners.get(web, ()))
        colour = next((one for one in wanted if one >= 0 and one not in taken), -1)
        if colour < 0:
            colour = next(one for one in range(len(meeting)) if one not in taken)
        found[web] = colour
    return found
