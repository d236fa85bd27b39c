"""The planner's timer says what the words take that a package holds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import CASES, KernelBuilder, random_case

from tilewright.errors import TilewrightError
from tilewright.planning import plan
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, MACHINE, machine
from tilewright.targets.cambricon.timer import timer


@pytest.mark.parametrize("seed", range(len(CASES)))
def test_words_take_the_same_time_with_values_and_without(seed: int) -> None:
    case = random_case(seed)
    described = machine(CONFIGURATIONS[seed % 3])
    try:
        schedule = plan(case.kernel, described).schedule
    except TilewrightError as error:
        pytest.skip(error.problems[0].code)
    cycles = timer(described)(case.kernel, schedule)
    try:
        _, result, _ = run_case(case, schedule, described)
    except TilewrightError:
        assert cycles == inf
    else:
        assert cycles == result.cycles


def test_weights_that_are_computed_are_timed_as_they_lie() -> None:
    """Columns of a matrix whose rows lie side by side are loaded row by row."""
    build = KernelBuilder(1)
    y = build.op("matmul", build.operand((1, 49), 0), build.operand((49, 2048), 8))
    kernel = build.finish(build.op("requantise", y, result=(16, 8))).kernel
    anchor = kernel.anchor
    computed = (anchor.inputs[0], replace(anchor.inputs[1], computed=True))
    stages = (replace(anchor, inputs=computed), *kernel.stages[1:])
    tile = (("n", 1), ("co", 512), ("ci", 49))
    schedule = Schedule("matmul", (Level("vsm", tile, ("co",)),), ())
    times = [timer(MACHINE)(one, schedule) for one in (kernel, replace(kernel, stages=stages))]
    # Four tiles of 49 rows, each with the latency of a transfer, but for one of each tile.
    assert times[1] - times[0] >= 4 * 48 * 100
