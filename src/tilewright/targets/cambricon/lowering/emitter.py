"""Statements in the making: registers, labels, loops, and scalar arithmetic that folds constants.

A **value** is a number known now, or a register that holds one at run time. Arithmetic on numbers
costs nothing; on registers it emits scalar instructions, as few as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.statements import Statement, statement

Value = int | Register
"""A number, or the register that holds it at run time."""

Operand = Register | int | str


class Emitter:
    """Collects the statements of one kernel; ``where`` names it in messages.

    ``prefix`` begins its labels. Registers are as many as there are values: tidying gives them
    those of the machine (tidy.py).
    """

    def __init__(self, where: str, prefix: str) -> None:
        self.where = where
        self._prefix = prefix
        self._labels = 0
        self._registers = 0
        self._body: list[Statement] = []
        self._remark = ""
        self._outlined: list[Statement] = []

    def finish(self) -> None:
        """Append the code that seldom runs; no other code falls into it."""
        if not self._outlined:
            return
        end = self.label("end")
        self.jump(end)
        self._body += self._outlined
        self.place(end)

    @contextmanager
    def outlined(self) -> Generator[None]:
        """Move code emitted within the context after all other code, as it seldom runs.

        Branches lead to it from the place where it is emitted, and it leads back there.
        """
        around, self._body, place = self._body, [], len(self._outlined)
        try:
            yield
        finally:
            # Placed before the blocks that are moved out of it: branches to cold code lead
            # forwards.
            self._outlined[place:place] = self._body
            self._body = around

    @property
    def statements(self) -> list[Statement]:
        """All that was emitted."""
        return self._body

    def remark(self, text: str) -> None:
        """Stands beside the next instruction."""
        self._remark = text

    def emit(self, text: str, *operands: Operand) -> None:
        """One instruction; a number is an immediate, a string a label."""
        self._body.append(statement(text, *operands, remark=self._remark))
        self._remark = ""

    def mark(self, remark: str) -> Statement:
        """A remark that stands here, to be found by identity when all is emitted."""
        self._body.append(Statement(remark=remark))
        return self._body[-1]

    def label(self, hint: str) -> str:
        """Return a label that is not used yet."""
        self._labels += 1
        return f"{self._prefix}_{hint}{self._labels}"

    def place(self, label: str) -> None:
        """Emit a label, on a line of its own."""
        self._body.append(Statement(label=label))

    # Registers.

    def register(self) -> Register:
        """A register that nothing else has."""
        self._registers += 1
        return Register(self._registers - 1)

    def reg(self, value: Value) -> Register:
        """The register of a value; numbers are filled in here."""
        return value if isinstance(value, Register) else self.variable(value)

    def variable(self, value: Value) -> Register:
        """A register of its own that starts with a value."""
        register = self.register()
        self.set(register, value)
        return register

    def set(self, target: Register, value: Value) -> None:
        """Emit ``target = value``, unless they are the same."""
        if value != target:
            self.emit("SMOVE", target, value)

    # Arithmetic.

    def add(self, a: Value, b: Value) -> Value:
        """Return a + b, emitting an instruction only if needed."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        if a == 0:
            return b
        if isinstance(a, int):
            a, b = b, a
        assert isinstance(a, Register)
        result = self.register()
        self.emit("SADD", result, a, b)
        return result

    def subtract(self, a: Value, b: Value) -> Value:
        """Return a - b, emitting an instruction only if needed."""
        if isinstance(b, int):
            return self.add(a, -b)
        result = self.register()
        if a == 0:
            self.emit("SMUL", result, b, -1)
        else:
            self.emit("SSUB", result, self.reg(a), b)
        return result

    def multiply(self, a: Value, b: Value) -> Value:
        """Return a * b, emitting an instruction only if needed."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if isinstance(a, int):
            a, b = b, a
        if b == 0 or b == 1:
            return 0 if b == 0 else a
        assert isinstance(a, Register)
        result = self.register()
        self.emit("SMUL", result, a, b)
        return result

    def divide(self, a: Value, b: int) -> Value:
        """a / b towards 0."""
        if isinstance(a, int):
            return a // b
        if b == 1:
            return a
        result = self.register()
        self.emit("SDIV", result, a, b)
        return result

    def minimum(self, a: Value, b: Value) -> Value:
        """Return the smaller of two values."""
        return self._chosen(a, b, least=True)

    def maximum(self, a: Value, b: Value) -> Value:
        """Return the greater of two values."""
        return self._chosen(a, b, least=False)

    def _chosen(self, a: Value, b: Value, *, least: bool) -> Value:
        """a, or b where it is smaller (greater): without a branch, as one could be mispredicted."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b) if least else max(a, b)
        if isinstance(a, int):
            a, b = b, a
        assert isinstance(a, Register)
        result, more = self.register(), self.register()
        if b == 0:
            self.emit("SGT", more, a, 0)
            self.emit("SMUL", result, more, a)
            if least:
                self.emit("SSUB", result, a, result)
            return result
        # b + (a > b) * (a - b) is the greater one, a - (a > b) * (a - b) the smaller.
        self.emit("SGT", more, a, b)
        self.emit("SSUB", result, a, b)
        self.emit("SMUL", more, more, result)
        if least:
            self.emit("SSUB", result, a, more)
        else:
            self.emit("SADD", result, more, b)
        return result

    def increase(self, target: Register, by: Value) -> None:
        """Emit ``target += by``, unless ``by`` is 0."""
        if by != 0:
            self.emit("SADD", target, target, by)

    # Control.

    def jump(self, label: str) -> None:
        """Emit a jump to a label."""
        self.emit("J", label)

    def if_positive(self, value: Value, label: str) -> None:
        """Branch to ``label`` if ``value`` > 0."""
        if isinstance(value, Register):
            self.emit("CB", value, label)
        elif value > 0:
            self.jump(label)

    def if_less(self, a: Value, b: Value, label: str) -> None:
        """Branch to ``label`` if ``a`` < ``b``."""
        self.if_positive(self.subtract(b, a), label)

    def repeat(self, count: Value, body: Callable[[], None], *, least: int = 0) -> None:
        """Run a body ``count`` times; ``least`` is what the count is known to be at least."""
        if isinstance(count, int):
            if count <= 0:
                return
            if count == 1:
                body()
                return
        left = self.variable(count)
        begin, end = self.label("loop"), self.label("end")
        guarded = isinstance(count, Register) and least < 1
        if guarded:
            self.emit("CB", left, begin)
            self.jump(end)
        self.place(begin)
        body()
        self.emit("SSUB", left, left, 1)
        self.emit("CB", left, begin)
        if guarded:
            self.place(end)

    def unrolled(self, count: Value, most: int, body: Callable[[], None]) -> None:
        """Run a body ``count`` times, without a loop where that is known to be at most ``most``."""
        if not isinstance(count, int) or count > most:
            self.repeat(count, body)
            return
        for _ in range(count):
            body()

    def in_parts(self, hint: str, count: Value, most: Value, body: Callable[[Value], None]) -> None:
        """Run a body for parts of a count, which is positive: each ``most``, the last one the rest.

        ``hint`` names the loop's label.
        """
        left = self.variable(count)
        again = self.label(hint)
        self.place(again)
        part = self.minimum(left, most)
        body(part)
        self.emit("SSUB", left, left, part)
        self.emit("CB", left, again)

    def aside(self, flag: Register, block: Callable[[], None]) -> None:
        """Run a block where ``flag`` is positive, which it mostly is not: one instruction then."""
        begin, end = self.label("aside"), self.label("beside")
        self.emit("CB", flag, begin)
        self.place(end)
        with self.outlined():
            self.place(begin)
            block()
            self.jump(end)
