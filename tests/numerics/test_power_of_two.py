"""Rounding and scaling of int8, against fractions: all of small ranges, ties of both signs."""

from fractions import Fraction
from itertools import product
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.numerics import fixed
from tilewright.numerics import power_of_two as numbers


def half_up(value: Fraction) -> int:
    """Half towards plus infinity, as hardware manuals word it: a negative half is cut off."""
    down = floor(value)
    part = value - down
    if part == Fraction(1, 2):
        return down + 1
    return down + 1 if part > Fraction(1, 2) else down


def cut(value: int) -> int:
    return max(-128, min(127, value))


def activated(value: Fraction, activation: str) -> Fraction:
    if activation == "relu":
        return max(value, Fraction(0))
    if activation == "leaky":
        return value * Fraction(26, 256) if value < 0 else value
    if activation == "relu6":
        return min(max(value, Fraction(0)), Fraction(96))
    return value


def test_every_shift_of_every_16_bit_number():
    values = np.arange(-32768, 32768)
    for shift in range(-3, 20):
        exact = np.floor(values * 2.0**-shift + 0.5).astype(np.int64)
        assert np.array_equal(numbers.rounded_shift(values, shift), exact), shift


def test_ties():
    for shift in range(1, 12):
        tie = 1 << (shift - 1)
        values = np.array([tie, -tie, 3 * tie, -3 * tie, tie - 1, -tie - 1, -tie + 1])
        expected = [1, 0, 2, -1, 0, -1, 0]
        assert numbers.rounded_shift(values, shift).tolist() == expected, shift


def test_large_shifts_round_to_nothing():
    for shift in (49, 50, 51, 64, 200):
        assert numbers.rounded_shift(np.array([-(1 << 47), -1, 0, (1 << 47)]), shift).tolist() == [
            0, 0, 0, 0,
        ]  # fmt: skip


@pytest.mark.parametrize("divisor", [*range(1, 10), 12, 25, 49, 64])
def test_every_quotient(divisor):
    values = np.arange(-400, 400)
    for shift in (-2, 0, 1, 3):
        found = fixed.rounded_divide(values << max(-shift, 0), divisor << max(shift, 0))
        exact = [half_up(Fraction(int(v), divisor) / Fraction(2) ** shift) for v in values]
        assert found.tolist() == exact


@pytest.mark.parametrize("activation", ["none", "relu", "leaky", "relu6"])
@pytest.mark.parametrize("shift_bias", [0, 1, 5])
def test_every_small_sum(activation, shift_bias):
    totals = np.arange(-200, 200)
    for shift_cut, bias in product((0, 1, 3, 6), (-128, -1, 0, 5, 127)):
        found = numbers.requantise(totals, bias, shift_bias, shift_cut, activation)
        assert found.dtype == np.int8
        exact = [
            cut(
                half_up(
                    activated(
                        Fraction(2 * int(t) + bias * 2**shift_bias, 2 ** (shift_cut + 1)),
                        activation,
                    )
                )
            )
            for t in totals
        ]
        assert found.tolist() == exact


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-(1 << 38), 1 << 38),
    st.integers(-128, 127),
    st.integers(0, 20),
    st.integers(0, 63),
    st.sampled_from(["none", "relu", "leaky", "relu6"]),
)
def test_sums_of_any_size(total, bias, shift_bias, shift_cut, activation):
    found = numbers.requantise(np.array([total]), bias, shift_bias, shift_cut, activation)
    exact = Fraction(2 * total + bias * 2**shift_bias, 2 ** (shift_cut + 1))
    assert int(found[0]) == cut(half_up(activated(exact, activation)))
    found = numbers.requantise_without_bias(np.array([total]), shift_cut, activation)
    exact = activated(Fraction(total, 2**shift_cut), activation)
    assert int(found[0]) == cut(half_up(exact))


def test_an_activation_with_slopes_is_no_activation_of_sums():
    with pytest.raises(ValueError):
        numbers.requantise(np.zeros(1), 0, 0, 0, "prelu")


@pytest.mark.parametrize("multiply", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_every_pair_of_int8(multiply, relu):
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    for first, second, shift_write in ((0, 0, 0), (1, 0, -1), (3, 5, 2), (0, 15, -3), (2, 2, -4)):
        found = numbers.elementwise(
            [a, b], [first, second], shift_write, multiply=multiply, relu=relu
        )
        left = np.floor(a * 4.0 / 2.0**first)
        right = np.floor(b * 4.0 / 2.0**second)
        total = (left * right / 16 if multiply else (left + right) / 4) * 2.0**shift_write
        if relu:
            total = np.maximum(total, 0)
        assert np.array_equal(found, np.clip(np.floor(total + 0.5), -128, 127))


def test_guard_bits_differ_from_the_exact_sum_where_two_operands_lose_bits():
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    zero = np.zeros_like(a)
    found = numbers.elementwise([a, b, zero], [4, 3, 0], 0).astype(int)
    exact = np.floor(a / 16 + b / 8 + 0.5).astype(int)
    assert set((found - exact).tolist()) == {-1, 0}
    # A quarter of the pairs lose a whole quarter unit together, and of these one in four a half.
    assert np.count_nonzero(found != exact) == 65536 // 16
    # One operand that loses bits changes no sum: half a unit lies on the grid of the guard bits.
    found = numbers.elementwise([a, b], [3, 0], -1)
    assert np.array_equal(found, np.floor((a / 8 + b) / 2 + 0.5))
    # Scaled up, what one operand has lost counts: a/8 has lost its last bit of a/2.
    values = np.arange(-128, 128)
    found = numbers.elementwise([values, np.zeros_like(values)], [3, 0], 2)
    assert np.array_equal(found, np.floor(values / 2))


@pytest.mark.parametrize("width", range(1, 9))
def test_every_average(width):
    factor = {
        3: Fraction(28, 256), 5: Fraction(10, 256), 6: Fraction(7, 256), 7: Fraction(21, 1024),
    }  # fmt: skip
    for height, shift in product((1, 2, 3, 7), (-3, 0, 2)):
        sums = np.arange(-128 * width * height, 127 * width * height + 1, 7)
        found = numbers.average(sums, (height, width), shift)
        scale = factor.get(width, Fraction(1, width * height)) * Fraction(2) ** shift
        assert found.tolist() == [cut(half_up(int(s) * scale)) for s in sums]


def test_no_factor_for_other_widths():
    with pytest.raises(KeyError):
        numbers.average(np.zeros(1), (9, 9), 0)


def test_every_int8_scaled_and_sloped():
    values = np.arange(-128, 128)
    for shift in range(-15, 8):
        exact = [cut(half_up(int(v) * Fraction(2) ** shift)) for v in values]
        assert numbers.scaled(values, shift).tolist() == exact
    for slope, negative, positive in product((-128, -3, 0, 26, 127), (0, 3, 8), (0, 2)):
        exact = [
            cut(half_up(Fraction(int(v) * slope, 2**negative) if v < 0
                        else Fraction(int(v), 2**positive)))
            for v in values
        ]  # fmt: skip
        assert numbers.sloped(values, slope, negative, positive).tolist() == exact
    for bias, shift in product((0, 4, 7, 20), (0, 10, 14, 31)):
        exact = [
            cut(half_up(Fraction(min(2**32, max(0, int(v) * 2731 + 3 * 2731 * 2**bias)), 2**shift)))
            for v in values
        ]
        assert numbers.hard_sigmoid(values, bias, shift).tolist() == exact
