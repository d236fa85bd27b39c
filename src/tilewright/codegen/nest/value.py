"""Integers that emitted C computes: numbers, or sums of products of its variables.

A sum is kept as its terms, so that what two sums share cancels, and equal values have equal texts::

    first = variable("co") * 64 + variable("ci") * 16
    (first - variable("co") * 64) // 16         # ci
    least(16, first - first + 8)                # the number 8

Everything else (quotients that leave a rest, products of two variables, extremes) is a term as it
stands. Each expression also has a text in Python, for those who run the loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Terms = tuple[tuple["Expr", int], ...]
"""The terms of a sum, each with its factor."""


@dataclass(frozen=True)
class Expr:
    """An integer expression, in C and in Python."""

    text: str
    python: str = field(compare=False)
    level: int = 3
    """3: stands anywhere; 2: a product; 1: a sum; 0: in parentheses already; -1: a comparison."""
    terms: Terms = field(default=(), compare=False, repr=False)
    """The terms of a sum or a multiple; empty for what is a term itself."""
    constant: int = field(default=0, compare=False, repr=False)
    """The constant that a sum adds to its terms."""
    operation: tuple[str, Value, Value] | None = field(default=None, compare=False, repr=False)
    """The sign or name, and the operands, of what is neither a variable nor a sum."""

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Value) -> Value:
        terms, constant = linear(other)
        mine, more = linear(self)
        return _summed((*mine, *terms), more + constant)

    def __radd__(self, other: int) -> Value:
        return self + other

    def __sub__(self, other: Value) -> Value:
        return self + other * -1

    def __rsub__(self, other: int) -> Value:
        return self * -1 + other

    def __mul__(self, other: Value) -> Value:
        terms, constant = linear(self)
        if isinstance(other, int):
            return _summed([(term, factor * other) for term, factor in terms], constant * other)
        (mine, number), (its, factor) = _multiple(self), _multiple(other)
        return _binary(mine, " * ", its, 2, _within(its)) * (number * factor)

    def __rmul__(self, other: int) -> Value:
        return self * other

    def __floordiv__(self, other: int) -> Value:
        terms, constant = linear(self)
        if all(number % other == 0 for number in (constant, *(factor for _, factor in terms))):
            return _summed([(term, factor // other) for term, factor in terms], constant // other)
        return _binary(self, " / ", other, 2, 3, " // ")

    def __mod__(self, other: int) -> Value:
        return 0 if other == 1 else _binary(self, " % ", other, 2, 3)


Value = int | Expr
"""A number, or an expression."""


def of(value: Value) -> Expr:
    """A value as an expression."""
    return value if isinstance(value, Expr) else Expr(str(value), str(value))


def variable(name: str) -> Expr:
    """Return a variable of the C. Its name in Python ends in an underscore, which neither Python's
    keywords nor the names in the text that runs it do."""
    return Expr(name, f"{name}_")


def product(factors: Iterable[Value]) -> Value:
    """The product of some values, numbers last."""
    number, value = 1, None
    for factor in factors:
        if isinstance(factor, int):
            number *= factor
        else:
            value = factor if value is None else value * factor
    return number if value is None else value * number


def apart(value: Value) -> Value:
    """A value that sums and products take as it stands."""
    if isinstance(value, int):
        return value
    return Expr(value.text, value.python, value.level, operation=("+", value, 0))


def factor(value: Value) -> str:
    """C of a value that can stand anywhere in a product."""
    return _shown(of(value), str(value), _within(of(value)))


def equal(left: Value, right: Value) -> Expr:
    """1 where two values are equal."""
    return _binary(left, " == ", right, -1, 1)


def more(left: Value, right: Value) -> Expr:
    """1 where a value is larger than another."""
    return _binary(left, " > ", right, -1, 1)


def select(condition: Expr, value: Value, other: Value) -> Value:
    """One value where a condition holds, another otherwise."""
    if value == other:
        return value
    a, b = of(value), of(other)
    return Expr(
        f"({condition.text} ? {a.text} : {b.text})",
        f"({a.python} if {condition.python} else {b.python})",
        0,
    )


def least(left: Value, right: Value) -> Value:
    """The smaller of two values."""
    rest = left - right
    if isinstance(rest, int):
        return left if rest <= 0 else right
    return _extreme("min", left, right)


def greatest(left: Value, right: Value) -> Value:
    """The larger of two values."""
    rest = left - right
    if isinstance(rest, int):
        return left if rest >= 0 else right
    return _extreme("max", left, right)


def _extreme(name: str, left: Value, right: Value) -> Expr:
    a, b = of(left), of(right)
    text, python = f"{name.upper()}({a.text}, {b.text})", f"{name}({a.python}, {b.python})"
    return Expr(text, python, 0, operation=(name, left, right))


def _within(value: Expr) -> int:
    """The level that the second factor of a product needs: that of a product, without a quotient
    or a rest in it."""
    return 3 if {"/", "%"}.intersection(value.text) else 2


def linear(value: Value) -> tuple[Terms, int]:
    """The terms of a value, and the number beside them."""
    if isinstance(value, int):
        return (), value
    return (value.terms, value.constant) if value.terms else (((value, 1),), 0)


def _multiple(value: Expr) -> tuple[Expr, int]:
    """A value as a multiple of another."""
    if len(value.terms) == 1 and not value.constant:
        return value.terms[0]
    return value, 1


def _summed(terms: Iterable[tuple[Expr, int]], constant: int) -> Value:
    """A sum; terms that are not subtracted come first."""
    factors: dict[Expr, int] = {}
    for term, factor in terms:
        factors[term] = factors.get(term, 0) + factor
    left = tuple((term, factor) for term, factor in factors.items() if factor)
    if not left:
        return constant
    if left[0][1] < 0:
        left = (*(t for t in left if t[1] > 0), *(t for t in left if t[1] < 0))
    if len(left) == 1 and left[0][1] == 1 and not constant:
        return left[0][0]
    ahead = left[0][1] < 0 < constant
    text, python = (str(constant),) * 2 if ahead else ("", "")
    for term, factor in left:
        text = _joined(text, _times(term, term.text, factor))
        python = _joined(python, _times(term, term.python, factor))
    if constant and not ahead:
        text, python = (_joined(each, str(constant)) for each in (text, python))
    level = 2 if len(left) == 1 and not constant and left[0][1] > 0 else 1
    return Expr(text, python, level, left, constant)


def _joined(text: str, term: str) -> str:
    if not text:
        return term
    return f"{text} - {term[1:]}" if term.startswith("-") else f"{text} + {term}"


def _times(term: Expr, text: str, factor: int) -> str:
    if factor == 1:
        return _shown(term, text, 1)
    text = _shown(term, text, 2 if factor > 0 else _within(term))
    text = text if factor == -1 else f"{text} * {abs(factor)}"
    return text if factor > 0 else f"-{text}"


def _binary(
    left: Value, sign: str, right: Value, level: int, within: int, python: str = ""
) -> Expr:
    outer, a, b = max(level, 1), of(left), of(right)
    return Expr(
        _shown(a, a.text, outer) + sign + _shown(b, b.text, within),
        _shown(a, a.python, outer) + (python or sign) + _shown(b, b.python, within),
        level,
        operation=(sign.strip(), left, right),
    )


def _shown(part: Expr, text: str, least: int) -> str:
    return text if part.level >= least or part.level == 0 else f"({text})"
