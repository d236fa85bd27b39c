"""Maps on fixed point, against the same rules on Python integers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.numerics import pointwise, tables

INT16 = st.integers(-32768, 32767)
INT32 = st.integers(-(2**31), 2**31 - 1)
POINT = st.integers(-8, 16)


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def run(operation: str, values: list[int], fractions: list[int], bits: int, **more: Any) -> int:
    arrays = [np.array([value], f"int{bits}") for value in values]
    result = pointwise.evaluate(operation, arrays, fixed=True, fractions=fractions, **more)
    assert result.shape == (1,)
    return result.item()


@given(INT16, INT16, POINT, POINT)
def test_sums_align_to_the_larger_point(x: int, y: int, f: int, g: int) -> None:
    point = max(f, g)
    left, right = x << (point - f), y << (point - g)
    assert run("add", [x, y], [f, g], 16) == wrap(left + right)
    assert run("sub", [x, y], [f, g], 16) == wrap(left - right)


@given(INT32, INT32)
def test_sums_and_products_of_accumulators_wrap(x: int, y: int) -> None:
    assert run("add", [x, y], [3, 3], 32) == wrap(x + y)
    assert run("sub", [x, y], [3, 3], 32) == wrap(x - y)
    assert run("mul", [x, y], [3, 5], 32) == wrap(x * y)


@given(INT16, INT16)
def test_products(x: int, y: int) -> None:
    assert run("mul", [x, y], [3, 9], 16) == wrap(x * y)


@given(INT32, st.sampled_from([16, 32]), st.floats(-2, 1.9))
def test_slopes(value: int, bits: int, alpha: float) -> None:
    x = value >> (32 - bits)
    slope = round(alpha * 2**14)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scaled = (x * slope + 2**13) >> 14
    expected = x if x >= 0 else min(max(scaled, low), high)
    assert run("leaky_relu", [x], [5], bits, attributes={"alpha": alpha}) == expected
    arrays = [np.array([x], f"int{bits}"), np.array([slope], np.int16)]
    result = pointwise.evaluate("prelu", arrays, fixed=True, fractions=[5, 14])
    assert result.dtype == f"int{bits}" and result.item() == expected


@given(INT32, st.sampled_from([16, 32]))
def test_signs_saturate(value: int, bits: int) -> None:
    x = value >> (32 - bits)
    high = 2 ** (bits - 1) - 1
    assert run("neg", [x], [0], bits) == min(-x, high)
    assert run("abs", [x], [0], bits) == min(abs(x), high)
    assert run("relu", [x], [0], bits) == max(x, 0)


@given(INT16, INT16)
def test_larger_and_smaller(x: int, y: int) -> None:
    assert run("max", [x, y], [4, 4], 16) == max(x, y)
    assert run("min", [x, y], [4, 4], 16) == min(x, y)


@given(INT16, POINT, st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_clip_rounds_its_bounds(x: int, f: int, minimum: float, maximum: float) -> None:
    bounds = [min(max(round(b * 2.0**f), -32768), 32767) for b in (minimum, maximum)]
    attributes = {"minimum": minimum, "maximum": maximum}
    assert run("clip", [x], [f], 16, attributes=attributes) == min(max(x, bounds[0]), bounds[1])
    assert run("clip", [x], [f], 16, attributes={"maximum": maximum}) == min(x, bounds[1])
    assert run("clip", [x], [f], 16, attributes={}) == x


@pytest.mark.parametrize(
    ("operation", "function", "attributes"),
    [
        ("tanh", math.tanh, {}),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x)), {}),
        ("hard_sigmoid", lambda x: min(max(0.25 * x + 0.5, 0), 1), {"alpha": 0.25, "beta": 0.5}),
        ("elu", lambda x: x if x >= 0 else 1.5 * math.expm1(x), {"alpha": 1.5}),
        ("erf", math.erf, {}),
    ],
)
def test_table_functions_by_name(
    operation: str, function: Callable[[float], float], attributes: dict[str, float]
) -> None:
    for x in range(-32768, 32768, 1237):
        result = run(operation, [x], [13], 16, result_fraction=12, attributes=attributes)
        assert abs(result / 2**12 - function(x / 2**13)) < 4e-4
    assert operation in tables.FUNCTIONS


def test_requantise_by_name() -> None:
    assert run("requantise", [1000], [6], 32, result_fraction=2) == 63


def test_integers_that_are_not_fixed_point() -> None:
    x, y = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    assert pointwise.evaluate("div", [x, y]).tolist() == [3, -3, -3, 3]
    assert pointwise.evaluate("add", [x, y]).dtype == np.int64


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_power_of_a_half_is_the_c_library_s(dtype: type[np.floating]) -> None:
    numbers = [-math.inf, -0.0, 0.0, 0.25, 2.25, math.inf, math.nan, -1.0]
    x = np.array(numbers, dtype)
    for exponents in (np.array(0.5, dtype), np.full(x.shape, 0.5, dtype)):
        found = pointwise.evaluate("pow", [x, exponents], fixed=False, fractions=[0, 0])
        expected = np.array([math.inf, 0.0, 0.0, 0.5, 1.5, math.inf, math.nan, math.nan], dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)
        assert not np.signbit(found[:6]).any()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_quotients_of_integers_go_towards_zero(dtype: type[np.integer]) -> None:
    """Of the least integer, too, which has no magnitude; by 0 they are 0."""
    ends = np.iinfo(dtype)
    near = [number for number in (-7, -3, -2, -1, 0, 1, 2, 3, 7) if number >= ends.min]
    numbers = [*near, ends.min, ends.min + 1, ends.max - 1, ends.max]
    pairs = [(x, y) for x in numbers for y in numbers if (x, y) != (ends.min, -1)]
    x, y = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    found = pointwise.evaluate("div", [x, y], fixed=False, fractions=[0, 0])
    signs = [1 if (a < 0) == (b < 0) else -1 for a, b in pairs]
    expected = [s * (abs(a) // abs(b)) if b else 0 for (a, b), s in zip(pairs, signs, strict=True)]
    assert found.dtype == dtype and found.tolist() == expected


def test_unknown_operations() -> None:
    for fixed in (False, True):
        with pytest.raises(KeyError):
            pointwise.evaluate("conv", [np.zeros(1, np.int16)], fixed=fixed, fractions=[0])
