"""The cost model against every tile enumerated and every command timed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning import planning_kernels as kernels
from tests.planning.event_reference import run
from tests.slow import but_fast
from tilewright.machine import Machine
from tilewright.planning.cost.bounds import primitives_for
from tilewright.planning.cost.columns import lower_bounds, price, rough_bounds
from tilewright.planning.cost.pipeline import Pipeline
from tilewright.planning.planners.schedules import schedule_of
from tilewright.planning.space.cells import cells_of
from tilewright.planning.space.tilings import Space, build_space
from tilewright.targets.cambricon_x.machine import MACHINE

KERNELS = [
    kernels.conv(48, 80, 15, 3),
    kernels.conv(64, 128, 14, 1, 2),
    kernels.conv(32, 96, 13, 1, residual=True),
    kernels.conv(40, 56, 11, 5, groups=2),
    kernels.conv(3, 32, 33, 7, 2),
    kernels.dense(700, 600),
    kernels.depthwise(72, 17),
    kernels.pool(48, 21, 3, 2, 1),
    kernels.lrn(40, 9),
    kernels.add(24, 12),
]
MACHINES = {
    "serial": MACHINE,
    "pipelined": kernels.variant(MACHINE, in_flight=4),
    "slow": kernels.variant(MACHINE, bandwidth=16.0),
    "unified": kernels.unified(MACHINE, "nbin", 24576),
}


def space_of(kernel: kernels.Kernel, machine: Machine) -> Space:
    return build_space(kernel, machine, primitives_for(kernel, machine)[0])


@pytest.mark.few(10)
@pytest.mark.parametrize("name", but_fast(MACHINES, [n for n in MACHINES if n != "unified"]))
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_bytes_are_exact_and_cycles_close_all_over_the_space(
    kernel: kernels.Kernel, name: str
) -> None:
    machine = MACHINES[name]
    space = space_of(kernel, machine)
    chosen = np.random.default_rng(len(kernel.symbol)).permutation(space.rows)[:3]
    part = space.take(chosen)
    errors: list[float] = []
    for one in price(part):
        for row in np.flatnonzero(np.isfinite(one.cycles)):
            schedule = schedule_of(part, one.arrangement, int(row))
            timeline = run(kernel, schedule, machine)
            assert one.bytes[row] == pytest.approx(timeline.main_bytes), schedule
            errors.append(float(one.cycles[row]) / timeline.cycles - 1)
    assert errors
    # Anywhere in the space; at the schedules that are chosen it is within 2 % (test_networks).
    assert np.mean(np.abs(errors)) < 0.12
    assert max(np.abs(errors)) < 0.4


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_no_price_is_below_its_lower_bound(kernel: kernels.Kernel, name: str) -> None:
    space = space_of(kernel, MACHINES[name])
    space = space.take(np.arange(0, space.rows, max(space.rows // 400, 1)))
    bounds = lower_bounds(space)
    assert (rough_bounds(space) <= bounds).all()
    for one in price(space):
        assert (one.cost >= bounds).all()


def test_a_single_slot_costs_what_it_serialises() -> None:
    # One weight tile after another: with one slot, load and compute take turns.
    kernel = kernels.dense(1008, 64)
    narrow = kernels.variant(MACHINE, sb=33024, in_flight=8)
    wide = kernels.variant(narrow, sb=4 * 33024)
    found: dict[int, float] = {}
    for machine in (narrow, wide):
        space = space_of(kernel, machine)
        rows = np.flatnonzero((space.size("co") == 16) & (space.size("ci") == 1008))
        one = min(price(space.take(rows)), key=lambda priced: float(priced.cycles[0]))
        found[int(one.arrangement.slots["w"][0])] = float(one.cycles[0])
        schedule = schedule_of(space.take(rows), one.arrangement, 0)
        cycles = run(kernel, schedule, machine).cycles
        assert found[int(one.arrangement.slots["w"][0])] == pytest.approx(cycles, rel=0.02)
    transfer, compute = (16 * 1008 * 2 + 64) / 128, 63
    assert found[1] > 4 * (transfer + compute)
    assert found[4] < 4 * transfer + 2 * compute + 350


@pytest.mark.parametrize("kernel", KERNELS[1:4], ids=lambda kernel: kernel.symbol)
def test_fillings_that_are_alike_have_the_price_of_their_own(kernel: kernels.Kernel) -> None:
    """It is computed once, for the first of them."""
    space = space_of(kernel, MACHINES["unified"])
    part = space.take(np.arange(0, space.rows, max(space.rows // 40, 1)))
    cells, found = cells_of(part), price(part)
    for one in found:
        rows = np.flatnonzero(one.arrangement.valid)
        pipeline = Pipeline(part.take(rows), cells.take(rows), one.arrangement.take(rows))
        cycles, moved = pipeline.cycles_and_bytes()
        np.testing.assert_array_equal(one.cycles[rows], cycles)
        np.testing.assert_array_equal(one.bytes[rows], moved)
    assert len({id(one.cycles) for one in found}) < len(found)
