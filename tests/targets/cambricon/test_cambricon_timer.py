"""The planner's timer says what the words take that a package holds."""

from __future__ import annotations

from math import inf

import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import CASES, random_case

from tilewright.errors import TilewrightError
from tilewright.planning import plan
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine
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
