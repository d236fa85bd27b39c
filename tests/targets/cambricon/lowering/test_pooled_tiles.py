"""Tiles of a pooled image that share rows, in the matrix scratchpad: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.machine import Machine
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import MACHINE

SLOW = MACHINE.with_values({"move.mload.latency": 4000})
"""Loads take longer than windows."""


def pool(
    kernel: int, stride: int, pads: tuple[int, int], images: int = 1, dilation: int = 1
) -> Case:
    build = KernelBuilder(kernel)
    x = build.operand((images, 32, 17, 9), layout="NHWC")
    window: dict[str, Any] = {
        "kernel": [kernel, 2],
        "strides": [stride, 1],
        "dilations": [dilation, 1],
    }
    return build.finish(build.op("max_pool", x, pads=[pads[0], 0, pads[1], 0], **window))


def pooled(case: Case, machine: Machine, rows: int, slots: int = 2, outer: int = 1 << 20) -> bool:
    """Return True if a kernel in tiles of so many rows gives what it should."""
    whole = dict(case.kernel.anchor.extents)
    levels = [Level("msm", tuple({**whole, "n": 1, "oh": rows}.items()), ("n", "oh"))]
    if outer < whole["oh"]:
        levels.insert(0, Level("vsm", tuple({**whole, "n": 1, "oh": outer}.items()), ("n", "oh")))
    kinds = tuple((one.name, slots) for one in case.kernel.operands)
    result, _, _ = run_case(case, Schedule("matrix_pool", tuple(levels), kinds), machine)
    return np.array_equal(result, case.expected)


@pytest.mark.few(19)
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("pads", [(0, 0), (1, 0), (0, 1), (2, 2)])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (4, 1), (5, 2)])
def test_results_are_those_of_the_windows(
    kernel: int, stride: int, pads: tuple[int, int], rows: int
) -> None:
    assert pooled(pool(kernel, stride, pads), SLOW, rows)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_first_tile_of_each_image_is_loaded_whole(rows: int) -> None:
    assert pooled(pool(3, 1, (1, 1), images=3), SLOW, rows)


@pytest.mark.parametrize("rows", [1, 2])
def test_windows_with_holes(rows: int) -> None:
    assert pooled(pool(3, 1, (0, 0), dilation=3), SLOW, rows)


def test_a_result_stays_while_its_images_come() -> None:
    assert pooled(pool(3, 1, (0, 0)), SLOW, rows=2, outer=4)
