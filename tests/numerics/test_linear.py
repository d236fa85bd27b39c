"""Scales and integers of symmetric quantisation."""

import numpy as np
import pytest

from tilewright.numerics import linear
from tilewright.numerics.observers import power_of_two_at_least


def test_the_largest_magnitude_is_the_largest_integer() -> None:
    limits = np.array([1.0, 0.3, 250.0])
    scales = linear.scales_of(limits, 8)
    assert scales.dtype == np.float32
    assert np.rint(limits / scales).tolist() == [127, 127, 127]
    assert linear.scales_of(0.0, 8) == 1.0


@pytest.mark.parametrize("bits", [8, 16])
def test_powers_of_two_never_saturate(bits: int) -> None:
    limits = np.random.default_rng(0).lognormal(sigma=4, size=100)
    scales = linear.scales_of(limits, bits, power_of_two=True)
    assert np.all(np.log2(scales) == np.rint(np.log2(scales)))
    assert np.all(limits / scales <= linear.levels(bits) + 1e-3)
    assert np.all(limits / scales > linear.levels(bits) / 2 - 1e-3)


def test_halves_go_to_the_even_integer() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, 300, -300])
    assert linear.quantise(x, np.float32(1), 8).tolist() == [0, 2, 2, 0, 127, -127]


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_searched_scales_are_never_worse(axis: int | None, power_of_two: bool) -> None:
    weight = np.random.default_rng(1).standard_t(3, size=(6, 5, 40)).astype(np.float32)

    def error(least: bool) -> float:
        scale = linear.weight_scales(weight, axis, 8, power_of_two, least)
        shape = [1, 1, 1]
        if axis is not None:
            shape[axis] = weight.shape[axis]
            assert scale.shape == (weight.shape[axis],)
        spread = scale.reshape(shape)
        return float(np.square(linear.quantise(weight, spread, 8) * spread - weight).sum())

    assert error(True) <= error(False)


@pytest.mark.parametrize(("value", "power"), [(1.0, 1.0), (1.1, 2.0), (0.25, 0.25), (0.3, 0.5)])
def test_power_of_two_at_least(value: float, power: float) -> None:
    assert power_of_two_at_least(value) == power
