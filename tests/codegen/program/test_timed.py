"""Times from tile programs alone, against those of the instructions that they become."""

from pathlib import Path

import pytest

from tests.targets.generic.kernel_cases import conv_case, matmul_case, pool_case
from tilewright.codegen.program.timed import one_by_one, tile_timer
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.simulate import simulate
from tilewright.targets.generic.timer import timer
from tilewright.tile.lower import tile
from tilewright.tile.tensors import separate_placements

MACHINES = Path(__file__).parents[3] / "examples" / "machines"


@pytest.mark.parametrize(
    "name",
    ["tokens", *(pytest.param(name, marks=pytest.mark.slow) for name in ("small-npu", "flags"))],
)
def test_they_are_those_of_the_instructions(name: str) -> None:
    machine = load_machine(MACHINES / f"{name}.toml")
    # Instructions that signal are fetched as others are, and tokens travel in those of commands.
    values = {"instruction_bytes": 0, "issue_cycles": 0}
    machine = machine.with_values(values)
    cases = [make(seed, True) for make in (conv_case, pool_case) for seed in range(2)]
    cases += [matmul_case(seed, True) for seed in range(2)]
    told = 0
    for case in cases:
        kernel = case.kernel
        if not machine.primitives_for(kernel.anchor.operation):
            continue
        schedule = Planner(machine).plan(kernel).schedule
        assert tile_timer(machine)(kernel, schedule) == timer(machine)(kernel, schedule)
        told += 1
    assert told > 3


def test_kernels_one_by_one_take_their_sum() -> None:
    machine = load_machine(MACHINES / "small-npu.toml").with_values({"issue_cycles": 0})
    programs = []
    for seed in range(3):
        kernel = conv_case(seed, True).kernel
        schedule = Planner(machine).plan(kernel).schedule
        programs.append(tile(kernel, schedule, machine, separate_placements(kernel)))
    alone = [simulate(one_by_one([program], machine), machine).cycles for program in programs]
    timeline = simulate(one_by_one(programs, machine), machine)
    assert timeline.cycles == pytest.approx(sum(alone), abs=len(alone))
    assert timeline.kernel_cycles.tolist() == pytest.approx(alone, abs=1)
