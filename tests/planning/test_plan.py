"""plan(): what it promises whichever planner does the work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planning import planning_kernels as kernels
from tilewright.errors import TilewrightError
from tilewright.planning import Plan, Planner
from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon_x.machine import MACHINE


def test_a_cached_plan_has_the_names_of_the_kernel_asked_for() -> None:
    cache: dict[object, Plan] = {}
    first = kernels.conv(16, 32, 14)
    found = Planner(MACHINE, cache=cache).plan(first)  # type: ignore[arg-type]
    stage = first.anchor
    inputs = tuple(replace(o, name=f"other_{o.name}") for o in stage.inputs)
    second = replace(
        first, symbol="again", stages=(replace(stage, inputs=inputs), *first.stages[1:])
    )
    again = Planner(MACHINE, cache=cache).plan(second)  # type: ignore[arg-type]
    assert len(cache) == 1
    assert dict(found.schedule.buffers).keys() == {"x", "w", "b", "y"}
    assert dict(again.schedule.buffers).keys() == {"other_x", "other_w", "other_b", "y"}
    assert again.schedule.levels == found.schedule.levels
    assert again.predicted_cycles == found.predicted_cycles


def test_plans_are_the_same_every_time_and_survive_json() -> None:
    kernel = kernels.conv(64, 96, 20, residual=True)
    one, two = Planner(MACHINE).plan(kernel), Planner(MACHINE).plan(kernel)
    assert replace(one, seconds=0.0) == replace(two, seconds=0.0)
    assert Schedule.from_json(one.to_json()["schedule"]) == one.schedule


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(TilewrightError, match="plan-primitive"):
        kernel = kernels.add(4, 4)
        stage = replace(kernel.anchor, operation="fold")
        Planner(MACHINE).plan(replace(kernel, stages=(stage,)))
    tiny = tuple(
        memory.model_copy(update={"bytes": 32}) if memory.bytes else memory
        for memory in MACHINE.memories
    )
    with pytest.raises(TilewrightError, match="plan-capacity"):
        Planner(MACHINE.model_copy(update={"memories": tiny})).plan(kernels.conv(16, 16, 8))
