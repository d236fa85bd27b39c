"""Which definitions of registers reach which uses: the webs of a kernel's statements.

A web is a set of definitions and of uses that belong together: each use sees some of these
definitions and no other. Registers are given out anew all the time, so one register has many webs,
and each could as well lie in a register of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from tilewright.targets.cambricon.isa import BY_MNEMONIC, Register
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


@cache
def places(mnemonic: str) -> tuple[int, tuple[int, ...]]:
    """The operand that an instruction writes (-1: none), and those that it may read."""
    if not mnemonic:
        return -1, ()
    operands = BY_MNEMONIC[mnemonic].operands
    written = next((n for n, one in enumerate(operands) if one.written), -1)
    reads = (n for n, one in enumerate(operands) if one.has_register and not one.written)
    return written, tuple(reads)


def written(one: Statement) -> Register | None:
    """The register that a statement writes."""
    place = places(one.mnemonic)[0]
    if place < 0:
        return None
    found = one.operands[place]
    assert isinstance(found, Register)
    return found


def read(one: Statement) -> Iterator[tuple[int, Register]]:
    """The registers that a statement reads, each with its operand's number.

    What it adds to is one that it writes, too.
    """
    target, reads = places(one.mnemonic)
    for place in (target, *reads) if adds(one) else reads:
        found = one.operands[place]
        if isinstance(found, Register):
            yield place, found


def adds(one: Statement) -> bool:
    """Whether a statement adds to the register that it writes."""
    return bool(one.modifiers.get("acc")) and places(one.mnemonic)[0] >= 0


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
    for number, one in enumerate(statements):
        if one.label is not None:
            starts.add(number)
        if one.mnemonic in ("J", "CB"):
            starts.add(number + 1)
    bounds = sorted(start for start in starts if start < len(statements))
    block_at = {start: number for number, start in enumerate(bounds)}
    labels = {one.label: n for n, one in enumerate(statements) if one.label is not None}
    found: list[Block] = []
    for number, (start, end) in enumerate(zip(bounds, [*bounds[1:], len(statements)], strict=True)):
        last = statements[end - 1]
        following: list[int] = []
        if last.mnemonic in ("J", "CB"):
            target = last.operands[-1]
            assert isinstance(target, Label)
            following.append(block_at[labels[target.name]])
        if last.mnemonic != "J" and number + 1 < len(bounds):
            following.append(number + 1)
        found.append(Block(start, end, tuple(following)))
    return found


def webs_of(
    statements: Sequence[Statement], blocks: Sequence[Block], clobbers: Clobbers
) -> list[Web]:
    """The webs, in the order of their first definitions."""
    return _Reaching(statements, blocks, clobbers).webs()


class _Reaching:
    """Definitions as bits; the lowest ones stand for what registers hold before all statements."""

    def __init__(
        self, statements: Sequence[Statement], blocks: Sequence[Block], clobbers: Clobbers
    ) -> None:
        self.statements, self.blocks, self.clobbers = statements, blocks, clobbers
        named = [r for one in statements for r in one.operands if isinstance(r, Register)]
        named += [r for some in clobbers.values() for r in some]
        count = 1 + max((r.number for r in named), default=0)
        self.count = count
        self.at: list[int] = [-1] * count
        """The statement of every definition."""
        self.register = list(range(count))
        self.of = [1 << number for number in range(count)]
        """All definitions of every register."""
        self.bits: dict[int, list[tuple[int, int]]] = {}
        """Of every statement that defines registers: their numbers and the definitions."""
        for number, one in enumerate(statements):
            registers = list(clobbers.get(id(one), ()))
            if (target := written(one)) is not None:
                registers.append(target)
            for register in registers:
                bit = 1 << len(self.at)
                self.at.append(number)
                self.register.append(register.number)
                self.of[register.number] |= bit
                self.bits.setdefault(number, []).append((register.number, bit))

    def webs(self) -> list[Web]:
        """Definitions joined by the uses that they reach."""
        parent = list(range(len(self.at)))

        def root(one: int) -> int:
            while parent[one] != one:
                parent[one] = parent[parent[one]]
                one = parent[one]
            return one

        uses: list[tuple[int, int, int]] = []
        for block, coming in zip(self.blocks, self._before(), strict=True):
            now: dict[int, int] = {}
            for number in range(block.start, block.end):
                for place, register in read(self.statements[number]):
                    r = register.number
                    reaching = now.get(r)
                    if reaching is None:
                        reaching = now[r] = coming & self.of[r]
                    first = -1
                    while reaching:
                        bit = reaching & -reaching
                        reaching ^= bit
                        one = bit.bit_length() - 1
                        if first < 0:
                            first = one
                        else:
                            parent[root(one)] = root(first)
                    if first >= 0:
                        uses.append((number, place, first))
                        if place == places(self.statements[number].mnemonic)[0]:
                            ((_, own),) = self.bits[number]
                            parent[root(own.bit_length() - 1)] = root(first)
                for r, bit in self.bits.get(number, ()):
                    now[r] = bit
        found: dict[int, Web] = {}
        for one, number in enumerate(self.at):
            web = found.setdefault(root(one), Web(self.register[one]))
            if number < 0:
                web.known = False
            else:
                web.defs.append(number)
        for number, place, one in uses:
            found[root(one)].uses.append((number, place))
        return [web for web in found.values() if web.defs]

    def _before(self) -> list[int]:
        """The definitions that reach each block's first statement."""
        gen: list[int] = []
        kept: list[int] = []
        everything = (1 << len(self.at)) - 1
        for block in self.blocks:
            last: dict[int, int] = {}
            for number in range(block.start, block.end):
                last.update(self.bits.get(number, ()))
            made, gone = 0, 0
            for r, bit in last.items():
                made |= bit
                gone |= self.of[r]
            gen.append(made)
            kept.append(everything & ~gone)
        before = [0] * len(self.blocks)
        before[0] = (1 << self.count) - 1
        again = True
        while again:
            again = False
            for number, block in enumerate(self.blocks):
                after = gen[number] | (before[number] & kept[number])
                for one in block.following:
                    more = before[one] | after
                    if more != before[one]:
                        before[one] = more
                        again = again or one <= number
        return before
