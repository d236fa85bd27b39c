"""Planners by name: options, and refusals of those that a machine has no use for."""

from __future__ import annotations

import pytest

from tests.planning import planning_kernels as kernels
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.planners.greedy import Greedy
from tilewright.planning.planners.registry import planner_of
from tilewright.system.choices import PLANNERS
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.cpu.machine import machine as cpu

CPU = cpu()
KERNEL = kernels.conv(20, 30, 12, 3)


@pytest.mark.parametrize(
    ("text", "greedy"),
    [
        ("greedy", Greedy()),
        ("greedy{}", Greedy()),
        ("greedy{start=granule}", Greedy("granule")),
        ("greedy{buffers=1 start=one}", Greedy("one", 1)),
        ("greedy{start=granule,buffers=2}", Greedy("granule", 2)),
    ],
)
def test_options_reach_the_greedy_planner(text: str, greedy: Greedy) -> None:
    wanted = Planner(MACHINE, search=greedy).plan(KERNEL)
    with planner_of(text, MACHINE) as asked:
        assert asked is not None
        found = asked(KERNEL)
    assert found is not None and found.planner == "greedy"
    assert (found.schedule, found.candidates) == (wanted.schedule, wanted.candidates)


def test_the_cost_model_needs_no_planner() -> None:
    for text, machine in (("model", MACHINE), ("exact", MACHINE), ("model", CPU)):
        with planner_of(text, machine) as asked:
            assert asked is None


@pytest.mark.parametrize(
    ("text", "machine", "options", "code", "words"),
    [
        (
            "guess",
            MACHINE,
            {},
            "option-planner",
            "model, exact, greedy, ldm, rows, space, stationary, swatop, blackbox, measured",
        ),
        ("greedy{start", MACHINE, {}, "option-planner", "no planner"),
        ("../greedy", MACHINE, {}, "option-planner", "no planner"),
        ("greedy{start=two}", MACHINE, {}, "option-planner", "start=one|granule"),
        ("greedy{stop=1}", MACHINE, {}, "option-planner", "takes no stop=1"),
        ("exact{start=one}", MACHINE, {}, "option-planner", "takes no options"),
        ("greedy", CPU, {}, "option-planner", "on caches"),
        ("ldm", CPU, {}, "option-planner", "on caches"),
        ("rows", CPU, {}, "option-planner", "on caches"),
        ("rows{block=5}", MACHINE, {}, "option-planner", "takes no options"),
        ("ldm{share=mesh}", MACHINE, {}, "option-planner", "no mesh"),
        ("swatop{share=mesh}", MACHINE, {}, "option-planner", "no mesh"),
        ("swatop{top=3}", MACHINE, {}, "option-planner", "top=1|4|16"),
        ("space{file=a}", CPU, {}, "option-planner", "on caches"),
        ("space{top=4}", MACHINE, {}, "option-planner", "file=FILE"),
        ("blackbox", CPU, {}, "option-planner", "on caches"),
        ("ldm{block=5}", MACHINE, {}, "option-planner", "block=16|32|64|128|256"),
        ("exact", CPU, {}, "option-planner", "on caches"),
        ("greedy", MACHINE, {"database": "some.sqlite"}, "option-planner", "no database"),
        ("measured", MACHINE, {}, "target-measure", "not this computer"),
    ],
)
def test_what_a_machine_has_no_use_for_is_refused(
    text: str, machine: Machine, options: dict[str, str], code: str, words: str
) -> None:
    with pytest.raises(TilewrightError) as caught, planner_of(text, machine, **options):  # type: ignore[arg-type]
        pass
    (problem,) = caught.value.problems
    assert problem.code == code
    assert words in str(problem)
    names = "model exact greedy ldm rows space stationary swatop blackbox measured"
    assert set(PLANNERS) == set(names.split())
