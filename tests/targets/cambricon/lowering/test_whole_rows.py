"""Images whose last columns no window reaches: whole rows come in one transfer, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import MACHINE


def pool(width: int, pads: tuple[int, int, int, int]) -> Case:
    build = KernelBuilder(width)
    x = build.operand((1, 32, 12, width), layout="NHWC")
    y = build.op("max_pool", x, kernel=[3, 3], strides=[2, 2], pads=list(pads))
    return build.finish(y)


def schedule(case: Case, rows: int, slots: int) -> Schedule:
    tile = {**case.kernel.anchor.extents, "oh": rows}
    level = Level("msm", tuple(tile.items()), ("oh",))
    kinds = tuple((one.name, slots) for one in case.kernel.operands)
    return Schedule("matrix_pool", (level,), kinds)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize(
    ("width", "pads"), [(12, (0, 0, 0, 0)), (13, (0, 0, 0, 0)), (13, (1, 1, 0, 0))]
)
def test_results_are_those_of_the_windows(
    width: int, pads: tuple[int, int, int, int], slots: int, rows: int
) -> None:
    case = pool(width, pads)
    found, _, _ = run_case(case, schedule(case, rows, slots), MACHINE)
    np.testing.assert_array_equal(found, case.expected)


def test_a_tile_of_whole_rows_is_one_transfer() -> None:
    """Windows reach 11 of 12 columns, and all of 11."""
    loads = [
        run_case(case, schedule(case, 1, 2), MACHINE)[1].counts["MLOAD"]
        for case in (pool(12, (0, 0, 0, 0)), pool(11, (0, 0, 0, 0)))
    ]
    assert loads == [5, 5]
