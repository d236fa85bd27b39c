"""Convolutions by a block of channels at a time, or few, most of VSM for pixels: bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder, conv_case

from tilewright.errors import TilewrightError
from tilewright.ir.types import shape_of
from tilewright.planning import Budget
from tilewright.planning.planners.exact import search
from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine
from tilewright.tile.lower import tile

UNCOMPUTED = {"lower-epilogue", "lower-window", "lower-registers"}
"""Chains and windows that the machine does not compute; never ``lower-temporaries``: what the
primitive keeps suffices, whatever follows the sums."""


def _agrees(case: Case, number: int, primitive: str = "narrow_conv") -> int:
    """How many of the planner's best schedules compute what the graph says."""
    described = machine(CONFIGURATIONS[number % 3])
    narrow = described.primitive(primitive)
    if not narrow.serves("conv", case.kernel.anchor.extents):
        return 0
    try:
        found = search(case.kernel, described, narrow, Budget(), 4)
    except TilewrightError as error:
        assert error.problems[0].code == "plan-capacity"
        return 0
    done = 0
    for one in found.candidates:
        # Buffers that lie together as closely as they can: one slot for each, and as planned.
        single: Schedule = replace(
            one.schedule, buffers=tuple((name, 1) for name, _ in one.schedule.buffers)
        )
        for schedule in (one.schedule, single):
            try:
                result, _, _ = run_case(case, schedule, described)
            except TilewrightError as error:
                assert error.problems[0].code in UNCOMPUTED, error
                continue
            np.testing.assert_array_equal(result, case.expected, err_msg=str(schedule))
            done += 1
    return done


@pytest.mark.few(1)
@pytest.mark.parametrize("primitive", ["narrow_conv", "slim_conv"])
@pytest.mark.parametrize("start", but_fast(range(0, 12, 6), [0]))
def test_planned_schedules_compute_what_the_graph_says(start: int, primitive: str) -> None:
    seeds = range(start, start + 6)
    assert sum(_agrees(conv_case(seed, True), seed, primitive) for seed in seeds) >= 6


FULL = [
    # the machine, what follows the sums, whether there is a bias, window and stride
    (0, "relu", True, (3, 1)),
    (0, "clip", False, (5, 2)),
    (1, "clip", True, (5, 2)),
    (1, "relu", False, (3, 1)),
    (2, "clip", True, (3, 1)),
    (2, "relu", False, (5, 2)),
]
"""Any two values of two columns are in a row."""


@pytest.mark.few(1)
@pytest.mark.parametrize("full", FULL, ids=str)
@pytest.mark.parametrize("primitive", ["narrow_conv", "slim_conv"])
def test_temporaries_suffice_where_vsm_is_full(
    full: tuple[int, str, bool, tuple[int, int]], primitive: str
) -> None:
    """An image that no tile holds, with paddings that differ, a residual and limits."""
    number, last, bias, (kernel, stride) = full
    build = KernelBuilder(number)
    lanes = CONFIGURATIONS[number].lanes
    operands = [
        build.image(1, 3 * lanes + 5, 29, 23),
        build.operand((2 * lanes + 3, 3 * lanes + 5, kernel, kernel), 10, layout="OHWI"),
        *([build.operand((2 * lanes + 3,), 18, bits=32)] if bias else []),
    ]
    pads = (1, 2, 0, 1) if kernel == 3 else (2, 1, 3, 0)
    y = build.op("conv", *operands, strides=(stride, stride), pads=pads, dilations=(1, 1), group=1)
    y = build.op("add", y, build.image(*shape_of(y), fraction=9))
    limits: dict[str, Any] = {"minimum": -0.5, "maximum": 6.0} if last == "clip" else {}
    case = build.finish(build.op("requantise", build.op(last, y, **limits), result=(16, 8)))
    assert _agrees(case, number, primitive)


def test_buffers_take_what_other_convolutions_keep_for_sums() -> None:
    """A tile of 64 channels that only fits where one block's sums are kept."""
    described = machine()
    build = KernelBuilder(2)
    y = build.op(
        "conv",
        build.image(1, 512, 14, 14),
        build.operand((512, 512, 3, 3), 10, layout="OHWI"),
        strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1,
    )  # fmt: skip
    kernel = build.plan_only(build.op("requantise", y, result=(16, 8)))
    narrow = described.primitive("narrow_conv")
    best = search(kernel, described, narrow, Budget(), 2).candidates
    rows = [one.schedule for one in best if dict(one.schedule.levels[0].tile)["ow"] == 14]
    assert rows, "whole rows are the best tiles"
    other = replace(rows[0], primitive="conv")
    placements = {
        operand.name: ("weights" if operand.role == "weight" else "activations", 0, strides)
        for operand, strides in zip(
            kernel.operands,
            [(14 * 14 * 512, 1, 14 * 512, 512), (9 * 512, 1, 3 * 512, 512)] * 2,
            strict=False,
        )
    }
    tile(kernel, rows[0], described, placements)
    with pytest.raises(TilewrightError) as caught:
        tile(kernel, other, described, placements)
    assert caught.value.problems[0].code == "tile-capacity"
