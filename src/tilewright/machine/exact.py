"""Exact arithmetic on fractions of integers, for single numbers and for NumPy columns alike.

A value is a numerator over a denominator (both Python ints or int64 columns), or a float over 1.
A bound on the magnitude of each is carried along, so that int64 columns never wrap: an operation
that could exceed 2**62 raises OverflowError instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add, eq, ge, gt, le, lt, ne, sub
from typing import Any, NamedTuple

import numpy as np

LIMIT = 1 << 62
"""Magnitude that no numerator or denominator may reach."""


class Exact(NamedTuple):
    """``numerator / denominator``; the denominator is positive, and 1 for floats."""

    numerator: Any
    denominator: Any = 1
    most: int = 0
    """Bound on the magnitude of an integer numerator."""
    most_below: int = 1
    """Bound on the denominator."""
    whole: bool = True
    """False when the numerator is a float (column)."""


def exact_of(value: Any) -> Exact:
    """An int, float, or column of either as a value; raises OverflowError beyond 2**62."""
    if isinstance(value, np.ndarray) and value.ndim:
        if value.dtype.kind == "f":
            return Exact(value.astype(np.float64, copy=False), whole=False)
        if value.dtype == np.uint64 and value.size and int(value.max()) >= LIMIT:
            raise OverflowError("magnitude beyond 2**62")
        column = value.astype(np.int64, copy=False)
        most = max(-int(column.min()), int(column.max()), 0) if column.size else 0
        _check(most)
        return Exact(column, 1, most)
    number = value.item() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(number, float):
        return Exact(number, whole=False)
    number = int(number)
    _check(abs(number))
    return Exact(number, 1, abs(number))


def plain_of(value: Exact) -> Any:
    """The value as an int where it is whole, else a float; or as a column.

    Raises OverflowError for a float that is not finite.
    """
    top, below = value.numerator, value.denominator
    if not value.whole and not np.all(np.isfinite(top)):
        raise OverflowError("a value is not finite")
    if isinstance(below, int):
        if below == 1:
            return top
        if isinstance(top, int) and top % below == 0:
            return top // below
    return top / below


def _check(most: int, most_below: int = 1) -> None:
    if most >= LIMIT or most_below >= LIMIT:
        raise OverflowError("magnitude beyond 2**62")


def _float(value: Exact) -> Any:
    return value.numerator if _is_one(value.denominator) else value.numerator / value.denominator


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def _common(a: Exact, b: Exact) -> tuple[Any, Any, Any, int, int, int]:
    """Two fractions over a common denominator: numerators, denominator, and the bounds of all
    three."""
    if _is_one(a.denominator) and _is_one(b.denominator):
        return a.numerator, b.numerator, 1, a.most, b.most, 1
    if isinstance(a.denominator, int) and a.denominator == b.denominator:
        return a.numerator, b.numerator, a.denominator, a.most, b.most, a.most_below
    most_a, most_b = a.most * b.most_below, b.most * a.most_below
    below = a.most_below * b.most_below
    _check(max(most_a, most_b), below)
    return (
        a.numerator * b.denominator,
        b.numerator * a.denominator,
        a.denominator * b.denominator,
        most_a,
        most_b,
        below,
    )


def _aligned(
    combine: Callable[[Any, Any], Any], bound: Callable[[int, int], int]
) -> Callable[[Exact, Exact], Exact]:
    """A function of two values that is one of their numerators over one denominator; ``bound`` is
    that of the result."""

    def apply(a: Exact, b: Exact) -> Exact:
        if not (a.whole and b.whole):
            return Exact(_scalar(combine(_float(a), _float(b))), whole=False)
        x, y, below, most_x, most_y, most_below = _common(a, b)
        most = bound(most_x, most_y)
        _check(most, most_below)
        return Exact(_scalar(combine(x, y)), below, most, most_below)

    return apply


def _multiply(a: Exact, b: Exact) -> Exact:
    if not (a.whole and b.whole):
        return Exact(_float(a) * _float(b), whole=False)
    most, most_below = a.most * b.most, a.most_below * b.most_below
    _check(most, most_below)
    units = _is_one(a.denominator), _is_one(b.denominator)
    below = (
        b.denominator if units[0] else a.denominator if units[1] else a.denominator * b.denominator
    )
    return Exact(a.numerator * b.numerator, below, most, most_below)


def _divide(a: Exact, b: Exact) -> Exact:
    if np.any(b.numerator == 0):
        raise ZeroDivisionError("division by zero")
    if not (a.whole and b.whole):
        return Exact(_float(a) / _float(b), whole=False)
    sign = np.sign(b.numerator) if np.any(b.numerator < 0) else 1
    sign = sign if isinstance(b.numerator, np.ndarray) else int(sign)
    turned = Exact(b.denominator * sign, b.numerator * sign, b.most_below, b.most)
    return _multiply(a, turned)


def _floor(a: Exact) -> Exact:
    if not a.whole:
        return Exact(_scalar(np.floor(a.numerator)), whole=False)
    return a if _is_one(a.denominator) else Exact(a.numerator // a.denominator, 1, a.most)


def _ceil(a: Exact) -> Exact:
    floor = _floor(a._replace(numerator=-a.numerator))
    return floor._replace(numerator=-floor.numerator)


def _absolute(a: Exact) -> Exact:
    return a._replace(numerator=abs(a.numerator))


def _remainder(a: Exact, b: Exact) -> Exact:
    return _subtract(a, _multiply(b, _floor(_divide(a, b))))


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Exact, Exact], Exact]:
    def apply(a: Exact, b: Exact) -> Exact:
        x, y = _common(a, b)[:2] if a.whole and b.whole else (_float(a), _float(b))
        truth = compare(x, y)
        return Exact(truth.astype(np.int64) if isinstance(truth, np.ndarray) else int(truth), 1, 1)

    return apply


def _selection(choose: Callable[[Any, Any], Any]) -> Callable[..., Exact]:
    pair = _aligned(choose, max)

    def apply(first: Exact, *others: Exact) -> Exact:
        return reduce(pair, others, first)

    return apply


def _where(condition: Exact, a: Exact, b: Exact) -> Exact:
    truth = condition.numerator != 0

    def choose(x: Any, y: Any) -> Any:
        return np.where(truth, x, y)

    return _aligned(choose, max)(a, b)


def _scalar(value: Any) -> Any:
    """A NumPy scalar or array of no dims as a Python number; columns as they are."""
    known = type(value) in (int, float) or (isinstance(value, np.ndarray) and value.ndim)
    return value if known else value.item()


_subtract = _aligned(sub, add)


OPERATORS: dict[str, Callable[[Exact, Exact], Exact]] = {
    "+": _aligned(add, add),
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "//": lambda a, b: _floor(_divide(a, b)),
    "%": _remainder,
    "<": _comparison(lt),
    "<=": _comparison(le),
    ">": _comparison(gt),
    ">=": _comparison(ge),
    "==": _comparison(eq),
    "!=": _comparison(ne),
}
"""Binary operators by sign."""

FUNCTIONS: dict[str, Callable[..., Exact]] = {
    "ceil": _ceil,
    "floor": _floor,
    "abs": _absolute,
    "min": _selection(np.minimum),
    "max": _selection(np.maximum),
    "where": _where,
}
"""The functions of expressions, by name."""
