"""Factors that stand for division in averages."""

from math import log2

import pytest

from tilewright.machine.rounding import Rounding

KERNELS = [(2, 2), (3, 3), (4, 4), (7, 7), (14, 14), (1, 5), (3, 2), (64, 64)]


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_factor_of_so_many_bits_is_nearer(kernel: tuple[int, int]) -> None:
    count, bits = kernel[0] * kernel[1], 7
    found = Rounding(average_bits=bits).average(*kernel)
    assert found is not None
    factor, shift = found
    assert 0 < factor < 2**bits
    error = abs(factor / 2**shift - 1 / count)
    tried = [abs(f / 2**s - 1 / count) for f in range(1, 2**bits) for s in range(24)]
    assert error == min(tried)
    if log2(count).is_integer():
        assert found == (1, int(log2(count)))


def test_factors_that_are_listed_come_first() -> None:
    rounding = Rounding(average_bits=7, averages={"3x3": (28, 8)})
    assert rounding.average(3, 3) == (28, 8)
    assert rounding.average(3, 1) != (28, 8)
    assert Rounding().average(3, 3) is None
