"""Convolutions with more channels than the temporaries have sums for: part by part, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.ir.types import shape_of
from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine, part_of

_, SMALL, _ = map(machine, CONFIGURATIONS)


def wide(channels: int, kernel: int, pads: tuple[int, int, int, int], relu: bool) -> Case:
    """With bias and residual."""
    build = KernelBuilder(channels + kernel)
    y = build.op(
        "conv",
        build.image(1, 20, 6, 5),
        build.operand((channels, 20, kernel, kernel), 10, layout="OHWI"),
        build.operand((channels,), 18, bits=32),
        strides=(1, 1),
        pads=pads,
        dilations=(1, 1),
        group=1,
    )
    if relu:
        y = build.op("relu", build.op("add", y, build.image(*shape_of(y), fraction=9)))
    return build.finish(build.op("requantise", y, result=(16, 8)))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("columns", [2, 5])
@pytest.mark.parametrize(
    ("channels", "kernel", "pads", "relu"),
    [
        (256, 1, (0, 0, 0, 0), True),
        (300, 1, (0, 0, 0, 0), False),
        (150, 2, (1, 0, 0, 1), True),
        (130, 3, (1, 1, 1, 1), False),
    ],
)
def test_sums_come_part_by_part(
    channels: int, kernel: int, pads: tuple[int, int, int, int], relu: bool, rows: int, columns: int
) -> None:
    case = wide(channels, kernel, pads, relu)
    described = SMALL.with_values({"memory.vsm.bytes": 48 << 10, "memory.msm.bytes": 128 << 10})
    assert part_of(described, channels) < channels
    tile = {**case.kernel.anchor.extents, "oh": rows, "ow": columns}
    level = Level("vsm", tuple(tile.items()), ("oh", "ow"))
    schedule = Schedule("wide_conv", (level,), tuple((o.name, 2) for o in case.kernel.operands))
    found, _, _ = run_case(case, schedule, described)
    np.testing.assert_array_equal(found, case.expected)


def test_the_planner_takes_all_channels_where_parts_of_pixels_would_wait() -> None:
    case = wide(256, 1, (0, 0, 0, 0), True)
    assert Planner(SMALL).plan(case.kernel).schedule.primitive == "wide_conv"


@pytest.mark.parametrize(("channels", "part"), [(128, 128), (129, 80), (256, 128), (300, 112)])
def test_parts_are_alike_and_of_whole_blocks(channels: int, part: int) -> None:
    assert part_of(SMALL, channels) == part
