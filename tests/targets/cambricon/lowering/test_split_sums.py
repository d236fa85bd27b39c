"""Sums of reductions in several tiles: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)


def points(bias: bool, residual: bool, last: str) -> Case:
    """80 channels of 112, windows of one pixel."""
    build = KernelBuilder(7 * bias + 3 * residual + len(last))
    operands = [
        build.image(1, 112, 5, 6),
        build.operand((80, 112, 1, 1), 10, layout="OHWI"),
        *([build.operand((80,), 18, bits=32)] if bias else []),
    ]
    y = build.op("conv", *operands, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), group=1)
    if residual:
        y = build.op("add", y, build.image(1, 80, 5, 6, fraction=9))
    limits: dict[str, Any] = {"minimum": -0.5, "maximum": 6.0} if last == "clip" else {}
    if last:
        y = build.op(last, y, **limits)
    return build.finish(build.op("requantise", y, result=(16, 8)))


@pytest.mark.parametrize("last", ["relu", "clip", ""])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("bias", but_fast([True, False], [True]))
@pytest.mark.parametrize(("deep", "rows", "columns"), [(32, 5, 6), (64, 2, 6), (16, 1, 4)])
def test_windows_of_one_pixel(
    deep: int, rows: int, columns: int, bias: bool, residual: bool, last: str
) -> None:
    """Two tiles of a reduction or several, the last one shorter; short tiles at the edges."""
    case = points(bias, residual, last)
    tile = {"ci": deep, "co": 48, "oh": rows, "ow": columns}
    found, _, _ = run_case(case, cut(case, tile, ("co", "oh", "ow", "ci"), slots=1), SMALL)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("kernel", [(3, 3), (2, 1), (9, 1)])
def test_windows_within_the_image(kernel: tuple[int, int]) -> None:
    """Windows of several rows; the tallest ones are no code of their own."""
    case = conv(48, 48, (11, 6), kernel, (0, 0, 0, 0), ("relu",))
    tile = {"ci": 16, "oh": 2, "ow": 4}
    found, _, _ = run_case(case, cut(case, tile, ("oh", "ow", "ci"), slots=1), SMALL)
    np.testing.assert_array_equal(found, case.expected)
