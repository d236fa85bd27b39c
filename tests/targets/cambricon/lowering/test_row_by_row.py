"""Sums of many pixels that wait while one row of the kernel after the other meets the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.errors import TilewrightError
from tilewright.ir.types import shape_of
from tilewright.planning import Budget
from tilewright.planning.planners.exact import search
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)


def conv(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    pads: tuple[int, int, int, int],
    residual: bool = False,
    limits: bool = False,
) -> Case:
    """96 channels of 40, on 16 lanes."""
    build = KernelBuilder(size[0] + kernel[0] + stride)
    y = build.op(
        "conv",
        build.image(1, 40, *size),
        build.operand((96, 40, *kernel), 10, layout="OHWI"),
        build.operand((96,), 18, bits=32),
        strides=(stride, stride),
        pads=pads,
        dilations=(1, 1),
        group=1,
    )
    if residual:
        y = build.op("add", y, build.image(*shape_of(y), fraction=9))
    given: dict[str, Any] = {"minimum": -0.5, "maximum": 6.0} if limits else {}
    y = build.op("clip" if limits else "relu", y, **given)
    return build.finish(build.op("requantise", y, result=(16, 8)))


def schedule(case: Case, waiting: int, rows: int, channels: int = 32) -> Schedule:
    """Sums of ``waiting`` rows wait, tiles have ``rows`` of them."""
    extents = case.kernel.anchor.extents
    outer = {**extents, "co": channels, "oh": waiting}
    inner = {**outer, "kh": 1, "oh": rows}
    levels = (
        Level("vsm", tuple(outer.items()), ("oh", "co")),
        Level("msm", tuple(inner.items()), ("kh", "oh")),
    )
    slots = tuple((one.name, 2) for one in case.kernel.operands)
    return Schedule("row_conv", levels, slots)


ROOM = SMALL.with_values({"memory.vsm.bytes": 64 << 10, "memory.msm.bytes": 64 << 10})


@pytest.mark.parametrize(
    "shape",
    but_fast(
        [
            ((14, 6), (3, 3), 2, (1, 1, 1, 1)),
            ((8, 6), (3, 3), 1, (1, 1, 1, 1)),
            ((8, 6), (3, 2), 1, (0, 0, 0, 0)),
            ((9, 7), (5, 3), 2, (1, 1, 1, 1)),
            ((13, 5), (4, 3), 3, (1, 0, 1, 1)),
        ],
        [((14, 6), (3, 3), 2, (1, 1, 1, 1)), ((8, 6), (3, 3), 1, (1, 1, 1, 1))],
    ),
)
@pytest.mark.parametrize(("waiting", "rows"), [(20, 1), (20, 2), (4, 1), (4, 2), (2, 1)])
def test_sums_wait(
    shape: tuple[tuple[int, int], tuple[int, int], int, tuple[int, int, int, int]],
    waiting: int,
    rows: int,
) -> None:
    """All rows of the result or some of them, tiles of one row or two; strides and paddings."""
    case, kernel = conv(*shape), shape[1]
    height = case.kernel.anchor.extents["oh"]
    waiting = min(waiting, height // rows * rows or rows)
    found, result, _ = run_case(case, schedule(case, waiting, rows), ROOM)
    np.testing.assert_array_equal(found, case.expected)
    # Weights come once for each part of the result that waits.
    assert result.bytes["mload"] < (-(-height // waiting) + 1) * 2 * 96 * 40 * kernel[0] * kernel[1]


@pytest.mark.parametrize("limits", [False, True])
def test_residuals_and_limits(limits: bool) -> None:
    case = conv((8, 6), (3, 3), 1, (1, 1, 1, 1), residual=True, limits=limits)
    found, _, _ = run_case(case, schedule(case, 4, 1), ROOM)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("size", but_fast([(8, 6), (8, 8), (7, 7)], [(8, 6)]))
@pytest.mark.parametrize(("columns", "order"), [(2, "oh ow kh"), (4, "ow oh kh"), (8, "oh kh")])
def test_no_sums_wait(size: tuple[int, int], slots: int, columns: int, order: str) -> None:
    """Each tile has its own weights, and rows that lie in the padding alone are not loaded."""
    case = conv(size, (3, 3), 1, (1, 1, 1, 1))
    tile = {**case.kernel.anchor.extents, "oh": 1, "ow": min(columns, size[1]), "kh": 1}
    level = Level("vsm", tuple(tile.items()), tuple(order.split()))
    buffers = tuple((operand.name, slots) for operand in case.kernel.operands)
    found, _, _ = run_case(case, Schedule("row_conv", (level,), buffers), ROOM)
    np.testing.assert_array_equal(found, case.expected)


def test_rows_far_from_the_image_are_refused() -> None:
    """A row of the kernel that lies a row behind the padding's first one for some pixels."""
    case = conv((9, 6), (5, 3), 1, (2, 1, 2, 1))
    with pytest.raises(TilewrightError) as caught:
        run_case(case, schedule(case, 9, 1), ROOM)
    assert caught.value.problems[0].code == "lower-window"


def test_planned_where_weights_do_not_fit() -> None:
    """A stride of 2: all pixels meet one row of the kernel before the next one."""
    described = machine()
    build = KernelBuilder(2)
    y = build.op(
        "conv",
        build.image(1, 512, 14, 14),
        build.operand((128, 512, 3, 3), 10, layout="OHWI"),
        build.operand((128,), 18, bits=32),
        strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1), group=1,
    )  # fmt: skip
    case = build.finish(build.op("requantise", y, result=(16, 8)))
    (best,) = search(
        case.kernel, described, described.primitive("row_conv"), Budget(), 1
    ).candidates
    outer, inner = (dict(level.tile) for level in best.schedule.levels)
    assert outer["oh"] > inner["oh"] and inner["kh"] == 1
    assert best.schedule.levels[1].order == ("kh", "oh")
    found, _, _ = run_case(case, best.schedule, described)
    np.testing.assert_array_equal(found, case.expected)
