"""Local value numbering: within a block, nothing is computed twice, and sums of sums are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilewright.targets.cambricon.isa import Immediate, Register
from tilewright.targets.cambricon.lowering.liveness import Clobbers, blocks_of, written_by
from tilewright.targets.cambricon.statements import Part, Statement

Version = tuple[int, int]
"""A register as it is after a number of writes."""


def numbered(
    code: Sequence[Statement], pure: frozenset[str], clobbers: Clobbers
) -> list[Statement]:
    """The same code, whose ``pure`` instructions do nothing but write a register."""
    result: list[Statement] = []
    for block in blocks_of(code):
        values = _Values()
        for statement in code[block.start : block.end]:
            if statement.mnemonic in pure and not any(statement.modifiers.values()):
                result.append(values.simplified(statement))
                continue
            result.append(values.copies_read(statement))
            for register in written_by(statement, clobbers):
                values.written(register)
    return result


class _Values:
    """The values that are known of registers from the start of a block on."""

    def __init__(self) -> None:
        self.writes: Counter[int] = Counter()
        self.sums: dict[int, tuple[Version, int]] = {}
        """For a register, the register it was computed from and the number that was added."""
        self.known: dict[tuple[object, ...], Version] = {}
        """The register or constant that has the value of an expression."""

    def version(self, register: Register) -> Version:
        """A register as it is now."""
        return register.number, self.writes[register.number]

    def base(self, register: Register) -> tuple[Register, int]:
        """A register and a number that make up another one's value."""
        (other, writes), more = self.sums.get(register.number, ((-1, 0), 0))
        if other < 0 or self.writes[other] != writes:
            return register, 0
        return Register(other), more

    def written(self, register: Register) -> None:
        """Nothing is known of a register any more."""
        self.writes[register.number] += 1
        self.sums.pop(register.number, None)

    def copies_read(self, statement: Statement) -> Statement:
        """The statement with copies read where they come from."""
        parts = list(statement.operands)
        for place, register in statement.reads:
            other, more = self.base(register)
            if more == 0 and not (statement.adds and place == 0):
                parts[place] = other
        return statement.having(tuple(parts)) if statement.reads else statement

    def simplified(self, statement: Statement) -> Statement:
        """An instruction that writes a register alone, in the shortest form that is known."""
        mnemonic, (target, *sources) = statement.mnemonic, self.copies_read(statement).operands
        assert isinstance(target, Register)
        if mnemonic == "SADD" and isinstance(number := sources[1], Immediate):
            assert isinstance(sources[0], Register)
            origin, more = self.base(sources[0])
            if abs(more + number.value) < 1 << 31:
                sources = [origin, Immediate(more + number.value)]
                if sources[1] == Immediate(0):
                    mnemonic, sources = "SMOVE", [origin]
        key = (
            mnemonic,
            *(self.version(part) if isinstance(part, Register) else part for part in sources),
        )
        number, writes = self.known.get(key, (target.number, 0))
        if number != target.number and self.writes[number] == writes:
            mnemonic, sources = "SMOVE", [Register(number)]
        self.written(target)
        if target not in sources:
            self._learn(target, mnemonic, sources)
            if mnemonic != "SMOVE":
                self.known[key] = self.version(target)
        return Statement(mnemonic, (target, *sources), remark=statement.remark)

    def _learn(self, target: Register, mnemonic: str, sources: Sequence[Part]) -> None:
        """Note that a register is a copy of another one, or the sum of one and a number."""
        first, last = sources[0], sources[-1]
        if isinstance(first, Register) and mnemonic in ("SADD", "SMOVE"):
            origin, more = self.base(first)
            if (mnemonic == "SADD" and not isinstance(last, Immediate)) or origin == target:
                return
            more += last.value if isinstance(last, Immediate) else 0
            self.sums[target.number] = self.version(origin), more
