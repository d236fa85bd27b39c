"""Transfers that wait for issue slots, a little early: bit for bit, whatever they meet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.targets.cambricon.machine import MACHINE


def test_many_issue_slots_in_a_tile() -> None:
    """Two transfers of a tile of 42 pixels of 16 cycles take two thirds of its time."""
    case = conv(64, 256, (1, 420), (1, 1), (0, 0, 0, 0), ("relu",))
    found, _, _ = run_case(case, cut(case, {"ow": 42}, ("ow",)), MACHINE)
    np.testing.assert_array_equal(found, case.expected)


def test_few_issue_slots_in_a_tile() -> None:
    """Pixels leave one by one, and each store is a little longer than a product."""
    case = conv(256, 256, (7, 28))
    tile = {"co": 128, "oh": 1, "ow": 7}
    schedule = cut(case, tile, ("co", "oh", "ow"), weights=1)
    found, _, _ = run_case(case, schedule, MACHINE)
    np.testing.assert_array_equal(found, case.expected)


def test_a_bias_that_comes_with_each_tile() -> None:
    case = conv(1024, 512, (1, 24), (1, 1), (0, 0, 0, 0))
    found, _, _ = run_case(case, cut(case, {"co": 256, "ow": 12}, ("ow", "co")), MACHINE)
    np.testing.assert_array_equal(found, case.expected)


def test_a_transfer_may_wait_for_the_one_before() -> None:
    """Gradients of maxima, a tile of which takes about as long as its transfers: the DMA is idle
    for a seventh of the time; a fifth if none were issued early."""
    build = KernelBuilder(1)
    case = build.finish(build.op("maximum_gradient", build.operand((30, 6, 480), 8)))
    schedule = replace(cut(case, {"n": 3}, ("n",)), primitive="maximum_gradient")
    found, result, _ = run_case(case, schedule, MACHINE)
    np.testing.assert_array_equal(found, case.expected)
    assert result.cycles < 1.18 * result.busy["vector_dma"]
