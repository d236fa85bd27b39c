"""Rows of results whose channels are cut into tiles: most of their stores run beside products."""

from __future__ import annotations

import numpy as np
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.targets.cambricon.machine import CONFIGURATIONS, LATENCY, machine


def test_stores_run_beside_products_of_the_next_row() -> None:
    """Products of a row at the image's edge take less time than its store."""
    case = conv(128, 256, (13, 13))
    chosen = cut(case, {"co": 64, "oh": 1}, ("co", "oh"))
    found, result, _ = run_case(case, chosen, machine(CONFIGURATIONS[0]))
    np.testing.assert_array_equal(found, case.expected)
    pixels = 13 * 3 - 2  # along each axis, positions of the kernel that meet the image
    products = 2 * pixels**2 * (64 // 32) * (256 // 32)
    weights = LATENCY + 64 * 256 * 9 * 2 / 128
    # Beside no products: the step to each of 26 tiles, its last sums, its last row's store.
    assert result.cycles < weights + products + 12 * LATENCY + 26 * 130
