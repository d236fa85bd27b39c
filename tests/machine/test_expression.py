import contextlib
import random
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.machine.expression import parse_expression


def evaluate(text, **dims):
    return parse_expression(text).evaluate(dims)


@pytest.mark.parametrize(
    ("text", "dims", "expected"),
    [
        ("ceil(co/16) * ceil(ci/16) * kh*kw*oh*ow", {"co": 33, "ci": 3, "kh": 5, "ow": 7}, 105),
        ("ceil(co/3*3)", {"co": 7}, 7),
        ("ceil((1 - 0.9) * 10)", {}, 1),
        ("-7 // 2", {}, -4),
        ("-7 % 3", {}, 2),
        ("7 - 2 - 1", {}, 4),
        ("2*-a + +3", {"a": 5}, -7),
        ("64 / 4 / 2", {}, 8),
        ("7/2", {}, 3.5),
        ("min(a, 4, 9) + max(a, 4)", {"a": 6}, 10),
        ("where(a < 3, 10, 20) + (a == 2) + (a != 2)*100", {"a": 2}, 11),
        ("a <= 2 * 1", {"a": 2}, 1),
        ("abs(a - 10) + floor(a/4)", {"a": 7}, 4),
        ("1.5e1 + .5 + 2.", {}, 17.5),
        ("missing * other", {}, 1),
        ("ceil(x)", {"x": 1.25}, 2),
        ("ceil(a/0.5)", {"a": 3}, 6),
        ("ceil(a / -2)", {"a": 3}, -1),
    ],
)
def test_values(text, dims, expected):
    value = evaluate(text, **dims)
    assert value == expected
    assert not isinstance(value, np.generic)


def test_division_is_exact_where_floats_are_not():
    big = 3 * (2**58 + 1)
    assert evaluate("ceil(a/3)", a=big) == 2**58 + 1
    column = np.array([big, big + 1])
    assert evaluate("ceil(a/3)", a=column).tolist() == [2**58 + 1, 2**58 + 2]
    assert ceil(big / 3) != 2**58 + 1


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("1 +", 4),
        ("(1", 3),
        ("a b", 3),
        ("2**3", 3),
        ("a.b", 2),
        ("[1]", 1),
        ("a; b", 2),
        ("f(1)", 1),
        ("1 + min", 5),
        ("min()", 5),
        ("where(1, 2)", 1),
        ("ceil(1, 2)", 1),
        ("a < b < c", 7),
        ("__import__('os')", 12),
        ("lambda: 1", 7),
        ("1e99", 1),
        ("9" * 30, 1),
        ("(" * 500, 42),
        ("-" * 500, 42),
        ("\u0661", 1),
        ("a\x00", 2),
    ],
)
def test_what_is_not_arithmetic_is_refused_with_its_column(text, column):
    with pytest.raises(TilewrightError, match=rf"column {column} ") as caught:
        parse_expression(text)
    assert caught.value.problems[0].code == "expression-invalid"


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("1/a", {"a": 0}),
        ("1/a", {"a": np.array([1, 0])}),
        ("1%a", {"a": 0.0}),
        ("a*a", {"a": 2**40}),
        ("a-b", {"a": 2**62 - 1, "b": -(2**61)}),
        ("a+b", {"a": 2**61, "b": np.array([2**61])}),
        ("a*a", {"a": np.array([1, 2**40])}),
        ("a*a", {"a": 1e200}),
        ("a", {"a": np.array([1.0, np.inf])}),
        ("a", {"a": np.array([2**63], np.uint64)}),
        ("a", {"a": 10**30}),
    ],
)
def test_values_out_of_range_are_refused(text, dims):
    with pytest.raises(TilewrightError) as caught:
        evaluate(text, **dims)
    assert caught.value.problems[0].code == "expression-value"


def test_length_is_bounded():
    assert evaluate("+".join("1" * 500)) == 500
    with pytest.raises(TilewrightError, match="longer"):
        parse_expression("+".join("1" * 501))


def test_names_and_cache():
    parsed = parse_expression("b*a + min(a, c)")
    assert parsed.names == ("b", "a", "c")
    assert str(parsed) == "b*a + min(a, c)"
    assert parse_expression("b*a + min(a, c)") is parsed


def random_expression(rng, depth):
    """Text of an expression, and a function of the dims that gives its exact value."""
    pick = rng.randrange(11) if depth else rng.randrange(2)
    if pick == 0:
        number = rng.randrange(1, 20)
        return str(number), lambda dims: Fraction(number)
    if pick == 1:
        name = rng.choice(["co", "ci", "k"])
        return name, lambda dims: Fraction(int(dims[name]))
    a, f = random_expression(rng, depth - 1)
    b, g = random_expression(rng, depth - 1)
    if pick <= 4:
        sign = "+-*"[pick - 2]
        apply = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}[sign]
        return f"({a} {sign} {b})", lambda dims: apply(f(dims), g(dims))
    if pick == 5:
        n = rng.randrange(1, 18)
        return f"(({a}) / {n})", lambda dims: f(dims) / n
    if pick == 6:
        n = rng.choice([-3, -2, 2, 3, 5, 16])
        return f"(({a}) // {n})", lambda dims: Fraction(floor(f(dims) / n))
    if pick == 7:
        n = rng.choice([-3, 2, 7])
        return f"(({a}) % {n})", lambda dims: f(dims) - n * floor(f(dims) / n)
    if pick == 8:
        return f"ceil({a})", lambda dims: Fraction(ceil(f(dims)))
    if pick == 9:
        return f"max({a}, {b})", lambda dims: max(f(dims), g(dims))
    return f"where({a} > {b}, {b}, {a})", lambda dims: min(f(dims), g(dims))


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_match_fractions(seed):
    rng = random.Random(seed)
    text, expected = random_expression(rng, 4)
    columns = {
        name: np.array([rng.randrange(1, 40) for _ in range(9)]) for name in ("co", "ci", "k")
    }
    rows = [{name: int(column[row]) for name, column in columns.items()} for row in range(9)]
    try:
        together = np.broadcast_to(evaluate(text, **columns), 9)
        alone = [evaluate(text, **row) for row in rows]
    except TilewrightError as error:
        assert error.problems[0].code == "expression-value"
        assert any(abs(expected(row)) > 1000 for row in rows) or len(text) > 100
        return
    for row, one, column in zip(rows, alone, together, strict=True):
        exact = expected(row)
        assert one == (int(exact) if exact.denominator == 1 else float(exact))
        assert column == pytest.approx(float(exact), rel=1e-12)


def test_float_columns():
    x = np.array([0.5, 1.0, 1.5, -2.25])
    assert evaluate("ceil(x) + floor(x) + a", x=x, a=np.array([1, 2, 3, 4])).tolist() == [
        2.0,
        4.0,
        6.0,
        -1.0,
    ]
    assert evaluate("where(x > 1, 1, 0)", x=x).tolist() == [0, 0, 1, 0]


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.text("0123456789.e+-*/%()<>=!, abceilfrmnx_", max_size=60),
    ),
    st.one_of(st.integers(), st.floats(), st.just(np.array([0, 1, -5, 2**40]))),
)
def test_nothing_but_a_refusal_escapes(text, value):
    with contextlib.suppress(TilewrightError):
        evaluate(text, a=value, b=value)
