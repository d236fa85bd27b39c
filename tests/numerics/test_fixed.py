"""Fixed point, against the same rules in Python integers, and against float within a bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.types import Array
from tilewright.numerics import fixed

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-32768, 32767)


def cut16(value: int) -> int:
    return min(max(value, -32768), 32767)


def half_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


@given(INT32, st.integers(-40, 80), st.integers(-40, 80))
def test_requantise(acc: int, source: int, target: int) -> None:
    exact = Fraction(acc) * Fraction(2) ** (target - source)
    result = fixed.requantise(np.array([acc], np.int32), source, target)
    assert result.dtype == np.int16
    assert result.item() == cut16(half_up(exact))


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**20))
def test_rounded_divide(total: int, count: int) -> None:
    assert fixed.rounded_divide(np.array(total), count).item() == half_up(Fraction(total, count))


@given(st.floats(width=32), st.integers(-20, 40))
def test_quantise(x: float, fraction: int) -> None:
    array = np.array([x], np.float32)
    result = fixed.quantise(array, fraction).item()
    if math.isnan(x):
        assert result == 0
    elif math.isinf(x):
        assert result == (32767 if x > 0 else -32768)
    else:
        assert result == cut16(round(Fraction(x) * Fraction(2) ** fraction))
        wide = fixed.quantise32(array, fraction).item()
        exact = round(Fraction(x) * Fraction(2) ** fraction)
        assert wide == min(max(exact, -(2**31)), 2**31 - 1)


@given(INT16, st.integers(-20, 40))
def test_dequantise_undoes_quantise(value: int, fraction: int) -> None:
    back = fixed.dequantise(np.array([value], np.int16), fraction)
    assert back.dtype == np.float32
    assert fixed.quantise(back, fraction).item() == value


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4))
def test_wrap32(values: list[int]) -> None:
    expected = [(value + 2**31) % 2**32 - 2**31 for value in values]
    assert fixed.wrap32(np.array(values, np.int64)).tolist() == expected


def test_accumulation_does_not_depend_on_the_tiling() -> None:
    generator = np.random.default_rng(3)
    x = generator.integers(-32768, 32768, (1, 8, 6, 6)).astype(np.int16)
    w = generator.integers(-32768, 32768, (3, 8, 3, 3)).astype(np.int16)
    bias = generator.integers(-(2**31), 2**31, 3).astype(np.int32)
    whole = fixed.conv2d(x, w, bias)
    halves = [
        fixed.conv2d(x[:, :5], w[:, :5], bias).astype(np.int64),
        fixed.conv2d(x[:, 5:], w[:, 5:]).astype(np.int64),
    ]
    np.testing.assert_array_equal(whole, fixed.wrap32(halves[0] + halves[1]))
    assert (np.abs(np.diff(whole.astype(np.int64).ravel())) > 2**30).any(), "nothing wraps"


def test_means_round_half_up() -> None:
    x = np.array([[[[1, 2], [-1, -2]]]], np.int16)
    assert fixed.average_pool2d(x, (1, 2)).ravel().tolist() == [2, -1]
    assert fixed.average_pool2d(x, (2, 2), (1, 1), (0, 0, 1, 0)).ravel().tolist() == [0, -1]
    counted = fixed.average_pool2d(x, (2, 2), (1, 1), (0, 0, 1, 0), (0, 0, 1, 0))
    assert counted.ravel().tolist() == [0, -1]
    third = fixed.average_pool2d(np.array([[[[1, 1, 0]]]], np.int16), (1, 3))
    assert third.item() == 1
    assert fixed.reduce_mean(x, (2, 3), False).tolist() == [[0]]
    assert fixed.reduce_mean(x, (3,), True).ravel().tolist() == [2, -1]
    extreme = np.full((1, 1, 64, 64), -32768, np.int16)
    assert fixed.average_pool2d(extreme, (64, 64)).item() == -32768


def lrn_slowly(
    x: Array, size: int, alpha: float, beta: float, bias: float, f: int, g: int
) -> list[int]:
    """The documented steps on Python integers, element by element."""
    m, k = round(alpha / size * 2**30), max(round(bias * 2**20), 1)
    before = (size - 1) // 2
    result: list[int] = []
    n, channels, h, w = x.shape
    for b in range(n):
        for c in range(channels):
            for i in range(h * w):
                low, high = max(c - before, 0), min(c - before + size, channels)
                row = x[b].reshape(channels, -1)[:, i].tolist()
                s = sum(value * value for value in row[low:high])
                t = k + half_up(Fraction(s * m, 2 ** (2 * f + 10)))
                e = t.bit_length() - 1
                u = (t << 16 >> e) - 65536
                table = [round((1 + j / 256) ** -beta * 2.0**15) for j in range(257)]
                place, rest = u >> 8, u & 255
                p = table[place] + (((table[place + 1] - table[place]) * rest + 128) >> 8)
                power = -beta * (e - 20)
                down = -math.floor(power)
                factor = round(2.0 ** (power + down) * 2**14)
                exact = Fraction(row[c] * p * factor) / Fraction(2) ** (29 + down + f - g)
                result.append(cut16(half_up(exact)))
    return result


LRN = [
    (5, 1e-4, 0.75, 1.0, 4, 4),
    (5, 1e-4, 0.75, 2.0, 8, 12),
    (3, 0.5, 0.5, 1.0, -5, 10),
    (4, 3.9, 2.0, 0.01, 12, 15),
    (1, 1e-3, 0.0, 1.0, 0, 3),
    (9, 2.0, 1.5, 65536.0, 26, -3),
]


@pytest.mark.parametrize("case", LRN, ids=str)
def test_lrn_follows_its_rule(case: tuple[int, float, float, float, int, int]) -> None:
    generator = np.random.default_rng(7)
    x = generator.integers(-32768, 32768, (1, 12, 3, 3)).astype(np.int16)
    x[0, :, 0, 0] = 0
    x[0, :, 0, 1] = -32768
    x[0, :, 0, 2] >>= 8
    assert fixed.lrn(x, *case).ravel().tolist() == lrn_slowly(x, *case)


@pytest.mark.parametrize("case", LRN, ids=str)
def test_lrn_is_close_to_float(case: tuple[int, float, float, float, int, int]) -> None:
    """Off by half a unit, plus 2**-11 relative.

    Relative parts for beta <= 2: mantissa table 2**-16 / 2**-2 and as much for interpolating,
    factor table 2**-15, 16 bits of u 2**-16 * beta, t's half unit of 2**-20 under bias and the
    rounding of m (2**-31 over alpha/size), both times beta: together below 2**-11.
    """
    size, alpha, beta, bias, f, g = case
    generator = np.random.default_rng(8)
    x = (generator.normal(size=(1, 12, 8, 8)) * 4000).astype(np.int16)
    squares = np.zeros(x.shape)
    for c in range(12):
        low = max(c - (size - 1) // 2, 0)
        window = x[:, low : c - (size - 1) // 2 + size].astype(np.float64) * 2.0**-f
        squares[:, c] = (window**2).sum(axis=1)
    exact = x * 2.0**-f / (bias + alpha / size * squares) ** beta * 2.0**g
    result = fixed.lrn(x, *case)
    inside = np.abs(exact) < 32767
    error = np.abs(result - exact)[inside]
    assert (error <= 0.5 + np.abs(exact[inside]) * 2.0**-11).all()
    assert inside.mean() > 0.02


def exponential_slowly(distance: int, f: int) -> int:
    z = min(half_up(Fraction(distance * 47274) / Fraction(2) ** (f - 1)), 48 << 16)
    table = [round(2 ** (16 - j / 256)) for j in range(257)]
    place, rest = (z >> 8) & 255, z & 255
    value = table[place] + (((table[place + 1] - table[place]) * rest + 128) >> 8)
    return half_up(Fraction(value, 2 ** (z >> 16)))


@given(st.integers(0, 65535), st.integers(-15, 46))
def test_exponential(distance: int, fraction: int) -> None:
    result = fixed.exponential(np.array([distance]), fraction).item()
    assert result == exponential_slowly(distance, fraction)
    exact = math.exp(-min(distance * 2.0**-fraction, 700)) * 65536
    assert abs(result - exact) <= 1.0 + exact * 6e-5


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("f", "g"), [(12, 14), (8, 15), (4, 10), (-2, 14), (15, 14)])
def test_softmax(axis: int, f: int, g: int) -> None:
    generator = np.random.default_rng(1000 + f * 31 + g)
    x = (generator.normal(size=(3, 10, 4)) * min(2.0**f * 4, 8000)).astype(np.int16)
    result = fixed.softmax(x, axis, f, g)
    assert result.dtype == np.int16 and result.shape == x.shape
    lanes, found = (
        np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis]),
        np.moveaxis(result, axis, -1),
    )
    for lane, row in zip(lanes.tolist(), found.reshape(-1, x.shape[axis]).tolist(), strict=True):
        e = [exponential_slowly(max(lane) - value, f) for value in lane]
        exact = [Fraction(item * 2**g, sum(e)) for item in e]
        assert row == [cut16(half_up(item)) for item in exact]
    real = np.exp((x - x.max(axis=axis, keepdims=True).astype(float)) * 2.0**-f)
    real = real / real.sum(axis=axis, keepdims=True)
    # Each exponential is off by one unit of 2**-16 and 6e-5 relative; the sum is at least 1.
    bound = 0.5 + 2.0**g * ((1 + x.shape[axis] * real) * 2.0**-16 + 1.3e-4 * real)
    clipped = np.minimum(real * 2.0**g, 32767)
    assert (np.abs(result - clipped) <= bound).all()


def test_softmax_of_one_element_is_one() -> None:
    assert (
        fixed.softmax(np.array([[-32768], [32767]], np.int16), 1, 3, 14).tolist() == [[16384]] * 2
    )
    assert fixed.softmax(np.array([5], np.int16), 0, 3, 15).tolist() == [32767]


def test_lrn_base_is_one_formula_of_the_sum_of_squares() -> None:
    squares = np.array([0, 1, 5 << 30], np.int64)
    assert fixed.lrn_base(squares, 5, 1e-4, 1.0, 8).tolist() == [
        2**20,
        2**20,
        2**20 + half_up(Fraction((5 << 30) * 21475, 2**26)),
    ]


@pytest.mark.parametrize("fraction", [-29, -16, -15])
def test_softmax_of_coarse_numbers_takes_the_largest(fraction: int) -> None:
    """Steps of 2**15 and more: all of the probability goes to the maxima."""
    x = np.array([[32767, 32766, -32768, 32767, 0]], np.int16)
    found = fixed.softmax(x, -1, fraction, 14)
    assert found.tolist() == [[8192, 0, 0, 8192, 0]]
