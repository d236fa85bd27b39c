"""Values against Python's own integers, in both of their texts."""

from __future__ import annotations

import random
import re

import pytest

from tilewright.codegen.nest.value import (
    Expr,
    Value,
    apart,
    equal,
    factor,
    greatest,
    least,
    more,
    of,
    product,
    select,
    variable,
)

NAMES = ("a", "b", "c")


def python_of(text: str) -> str:
    """C of an integer expression, in Python: no operand of a quotient is negative here."""
    text = re.sub(r"\(([^()]*|[^()]*\([^()]*\)[^()]*) \? ", r"(\1 and ", text)
    return text.replace("/", "//").replace("MIN", "min").replace("MAX", "max")


def drawn(draw: random.Random, at: dict[str, int], depth: int) -> tuple[Value, int]:
    """A value, and what it is where variables are ``at``."""
    if depth == 0:
        if draw.random() < 0.3:
            number = draw.randrange(-4, 20)
            return number, number
        name = draw.choice(NAMES)
        return variable(name), at[name]
    left, mine = drawn(draw, at, depth - 1)
    right, its = drawn(draw, at, depth - 1)
    number = draw.randrange(1, 9)
    match draw.randrange(8):
        case 0:
            return left + right, mine + its
        case 1:
            return left - right, mine - its
        case 2:
            return left * number, mine * number
        case 3:
            return left * right, mine * its
        case 4:
            left, mine = greatest(left, 0), max(mine, 0)
            return left // number, mine // number
        case 5:
            left, mine = greatest(left, 0), max(mine, 0)
            return left % number, mine % number
        case 6:
            return least(left, right), min(mine, its)
        case _:
            return product((left, number, right)), mine * number * its


@pytest.mark.parametrize("seed", range(20))
def test_both_texts_say_the_value(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        at = {name: draw.randrange(40) for name in NAMES}
        value, number = drawn(draw, at, draw.randrange(1, 5))
        scope = {**at, **{f"{name}_": there for name, there in at.items()}}
        assert eval(of(value).python, scope) == number, of(value).python
        assert eval(python_of(str(value)), scope) == number, str(value)
        assert eval(python_of(f"3 * {factor(value)}"), scope) == 3 * number
        if isinstance(value, Expr):
            assert value - value == 0 and (value * 6 + 12) // 6 == value + 2


def test_what_two_sums_share_cancels() -> None:
    outer, inner = variable("co") * 64, variable("ci") * 16
    assert str(outer + inner - outer + 8) == "ci * 16 + 8"
    assert str((inner + 32) // 16) == "ci + 2"
    assert str(5 - variable("x") * 2) == "5 - x * 2"
    assert str((inner - outer + 3) * variable("n")) == "(ci * 16 - co * 64 + 3) * n"
    assert str(apart(inner + outer) * 256 + inner) == "(ci * 16 + co * 64) * 256 + ci * 16"
    assert least(inner + 4, inner + 8) == inner + 4
    assert greatest(inner + 4, inner + 8) == inner + 8


def test_choices() -> None:
    first = select(equal(variable("a"), 0), 5, variable("b") + 1)
    scope = {"a_": 0, "b_": 7}
    assert eval(of(first).python, scope) == 5 and eval(of(first).python, {**scope, "a_": 2}) == 8
    assert str(first) == "(a == 0 ? 5 : b + 1)"
    assert str(more(variable("a"), 3)) == "a > 3"
    assert select(more(variable("a"), 3), 2, 2) == 2
