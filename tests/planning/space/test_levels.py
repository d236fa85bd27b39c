"""Two levels of tiles: prices are the times of programs, and waits that are implied are free."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.planning.planning_kernels import conv, dense
from tilewright.machine.load import load_machine
from tilewright.planning import Plan, PlanKey, Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.simulate.timing import simulate
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import placed_alone, timed_kernel, timer
from tilewright.tile.lower import tile

FILE = Path(__file__).parents[3] / "examples" / "machines" / "five-buffers.toml"
MACHINE = load_machine(FILE).with_values({"element": "fixed16", "accumulator": "fixed32"})

KERNELS = {
    "conv": conv(24, 48, 14, 3),
    "strided": conv(3, 40, 27, 5, stride=2),
    "dense": dense(96, 200, n=7),
}


def _drawn(seed: int) -> Kernel:
    """A convolution, or a product of some rows."""
    pick = np.random.default_rng(seed)
    ci, co = (int(channels) for channels in pick.integers(8, 200, 2))
    if seed % 3 == 0:
        return dense(8 * ci, 4 * co, n=int(pick.integers(1, 100)))
    size, window = int(pick.integers(7, 40)), int(pick.choice((1, 3, 5)))
    return conv(ci, co, size, window, stride=int(pick.integers(1, 3)), residual=seed % 2 == 0)


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(9))
def test_a_price_is_the_time_of_the_tile_programs_own_commands(seed: int) -> None:
    kernel, cycles = _drawn(seed), timer(MACHINE)
    plan = Planner(MACHINE).plan(kernel)
    schedule = plan.schedule
    assert abs(plan.predicted_cycles - cycles(kernel, schedule)) <= 2
    single = replace(
        schedule,
        buffers=tuple((name, 1) for name, _ in schedule.buffers),
        staged=tuple((name, memory, 1) for name, memory, _ in schedule.staged),
    )
    assert plan.predicted_cycles <= cycles(kernel, single)


@pytest.mark.parametrize("name", KERNELS)
def test_a_timer_chooses_among_what_was_priced_without_one(name: str) -> None:
    kernel = KERNELS[name]
    cache: dict[PlanKey, Plan] = {}
    priced = Planner(MACHINE, cache=cache).plan(kernel)
    asked: list[Schedule] = []
    known = timer(MACHINE)

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        asked.append(schedule)
        return known(kernel, schedule)

    timed = Planner(MACHINE, timer=cycles, cache=cache).plan(kernel)
    offered = [priced.schedule, *(other.schedule for other in priced.others)]
    assert len(asked) == len(offered) == timed.timed
    assert timed.schedule in offered
    assert timed.timed_cycles == min(known(kernel, schedule) for schedule in offered)
    assert not timed.others
    assert len(cache) == 2


@pytest.mark.parametrize("name", KERNELS)
def test_waits_that_others_imply_take_no_time(name: str) -> None:
    kernel = KERNELS[name]
    schedule = Planner(MACHINE).plan(kernel).schedule
    known = derive(MACHINE)
    waits, cycles = list[int](), list[int]()
    for check in (True, False):
        placements, lowering = placed_alone(kernel, known)
        program = tile(kernel, schedule, known.machine, placements, check=check)
        table = timed_kernel(program, lowering)
        waits.append(int(np.count_nonzero(table["waits"])))
        cycles.append(simulate(table, known.machine).cycles)
    assert cycles[0] == cycles[1]
    assert waits[0] <= waits[1]
