"""Cycle expressions: arithmetic on the dims of a tile, parsed and never executed as code.

    ceil(co/16) * ceil(ci/16) * kh * kw * n * oh * ow

Operators are ``+ - * / // %`` and the comparisons ``< <= > >= == !=`` (1 or 0); functions are
``ceil floor abs`` of one argument, ``min max`` of one or more, and ``where(condition, then, else)``
(both sides are computed). A name is a dim; a dim that the tile does not have counts as 1.

Values are exact fractions of integers: ``/`` keeps numerator and denominator apart, so
``ceil(co/3*3)`` is ``co``. A column of floats makes what it touches a float.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.machine.exact import FUNCTIONS, OPERATORS, Exact, exact_of, plain_of

MAX_LENGTH = 1000
"""Characters of an expression."""

MAX_DEPTH = 40
"""Nesting of parentheses, calls and signs."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<sign>//|<=|>=|==|!=|[-+*/%<>(),])"
    r"|(?P<end>$))"
)
_PRECEDENCE: dict[str, int] = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 1),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "//", "%"), 3),
}
_UNARY = 4
_ARGUMENTS = {"ceil": (1, 1), "floor": (1, 1), "abs": (1, 1), "where": (3, 3)}

Step = tuple[str, Any, int]
"""One step of a stack program: what ("constant", "dim", "call"), its object, how many it pops."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression; made by ``parse_expression``."""

    text: str
    names: tuple[str, ...]
    """The dims that it depends on, in order of first use."""
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return self.text

    def evaluate(self, dims: Mapping[str, Any]) -> Any:
        """The value for dims that are numbers or columns of numbers (which broadcast).

        Returns an int when the value is whole and every input is an integer, else a float; for
        columns an array of int64, or of float64 when fractions or floats remain. Raises
        TilewrightError for a division by zero, for integers beyond 2**62 and for infinities.
        """
        try:
            if not self.names:
                return self._constant
            with np.errstate(all="ignore"):
                return plain_of(self._run(dims))
        except (ZeroDivisionError, OverflowError) as error:
            raise refuse("expression-value", f"{error} in {self.text!r}") from None

    @cached_property
    def _constant(self) -> Any:
        return plain_of(self._run({}))

    def _run(self, dims: Mapping[str, Any]) -> Exact:
        stack: list[Exact] = []
        known: dict[str, Exact] = {}
        for kind, operand, pops in self.steps:
            if kind == "constant":
                stack.append(operand)
            elif kind == "dim":
                if operand not in known:
                    known[operand] = exact_of(dims.get(operand, 1))
                stack.append(known[operand])
            else:
                arguments = stack[len(stack) - pops :]
                del stack[len(stack) - pops :]
                stack.append(operand(*arguments))
        return stack[0]


@lru_cache(maxsize=1024)
def parse_expression(text: str) -> Expression:
    """Parse an expression; raises TilewrightError with the column of what is wrong."""
    if len(text) > MAX_LENGTH:
        raise refuse("expression-invalid", f"longer than {MAX_LENGTH} characters")
    return _Parser(text).parse()


class _Parser:
    """Precedence climbing over the tokens, emitting steps in postfix order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.steps: list[Step] = []
        self.names: dict[str, None] = {}
        self.kind, self.token, self.column = "end", "", 0
        self.advance()

    def parse(self) -> Expression:
        self.expression(0, 0)
        if self.kind != "end":
            raise self.error(f"{self.token!r} is not expected here")
        return Expression(self.text, tuple(self.names), tuple(self.steps))

    def error(self, reason: str, column: int | None = None) -> TilewrightError:
        place = (self.column if column is None else column) + 1
        return refuse("expression-invalid", f"{reason} (column {place} of {self.text!r})")

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            skipped = len(self.text[self.position :]) - len(self.text[self.position :].lstrip())
            self.column = self.position + skipped
            raise self.error(f"{self.text[self.column]!r} is not arithmetic")
        self.kind = str(match.lastgroup)
        self.token = match.group(self.kind)
        self.column, self.position = match.start(self.kind), match.end()

    def accept(self, sign: str) -> bool:
        if self.kind == "sign" and self.token == sign:
            self.advance()
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            lookahead = repr(self.token) if self.kind != "end" else "the end"
            raise self.error(f"expected {sign!r}, found {lookahead}")

    def expression(self, lowest: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}")
        self.operand(depth)
        while self.kind == "sign" and _PRECEDENCE.get(self.token, -1) >= lowest:
            sign, precedence, column = self.token, _PRECEDENCE[self.token], self.column
            if precedence == lowest == 1:
                raise self.error("comparisons do not chain; use parentheses", column)
            self.advance()
            self.expression(precedence + 1, depth + 1)
            self.call(OPERATORS[sign], 2)
            if precedence == 1:
                lowest = 1

    def operand(self, depth: int) -> None:
        kind, token, column = self.kind, self.token, self.column
        if kind == "number":
            self.advance()
            self.constant(token, column)
        elif kind == "name":
            self.advance()
            if self.accept("("):
                self.arguments(token, column, depth)
            elif token in FUNCTIONS:
                raise self.error(f"{token} is a function and needs arguments", column)
            else:
                self.names.setdefault(token)
                self.steps.append(("dim", token, 0))
        elif self.accept("("):
            self.expression(0, depth + 1)
            self.expect(")")
        elif self.accept("-"):
            self.steps.append(("constant", exact_of(0), 0))
            self.expression(_UNARY, depth + 1)
            self.call(OPERATORS["-"], 2)
        elif self.accept("+"):
            self.expression(_UNARY, depth + 1)
        else:
            raise self.error(
                "an operand is missing" if kind == "end" else f"{token!r} is not expected here"
            )

    def constant(self, token: str, column: int) -> None:
        value = Fraction(token) if len(token) <= 32 else Fraction(1 << 62)
        if max(value.numerator, value.denominator) >= 1 << 62:
            raise self.error("number out of range", column)
        number = exact_of(value.numerator)
        if value.denominator != 1:
            number = OPERATORS["/"](number, exact_of(value.denominator))
        self.steps.append(("constant", number, 0))

    def arguments(self, name: str, column: int, depth: int) -> None:
        if name not in FUNCTIONS:
            raise self.error(f"unknown function {name} (known: {', '.join(FUNCTIONS)})", column)
        count = 1
        self.expression(0, depth + 1)
        while self.accept(","):
            self.expression(0, depth + 1)
            count += 1
        self.expect(")")
        least, most = _ARGUMENTS.get(name, (1, 16))
        if not least <= count <= most:
            needed = str(least) if least == most else f"{least} to {most}"
            raise self.error(f"{name} takes {needed} argument(s), not {count}", column)
        self.call(FUNCTIONS[name], count)

    def call(self, function: Callable[..., Exact], count: int) -> None:
        self.steps.append(("call", function, count))
