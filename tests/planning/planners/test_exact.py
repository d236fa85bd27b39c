"""The exact planner: the optimum, its bounds, its timer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning import planning_kernels as kernels
from tests.planning.event_reference import buffer_bytes, run, timer
from tests.slow import crossed
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.planning import Budget, PlanCache, Planner
from tilewright.planning.cost.bounds import granule_bound, primitives_for
from tilewright.planning.cost.columns import price
from tilewright.planning.planners.exact import FAR, search
from tilewright.planning.planners.greedy import Greedy
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.sizes import EFFORTS
from tilewright.planning.space.tilings import build_space
from tilewright.targets.cambricon.machine import SMALL as SMALLEST
from tilewright.targets.cambricon.machine import machine
from tilewright.targets.cambricon_x.machine import MACHINE

SMALL = kernels.variant(MACHINE, nbin=1024, nbout=1024, sb=8192)

TINY = [
    kernels.conv(32, 48, 6, 3),
    kernels.conv(32, 32, 4, 1, residual=True),
    kernels.dense(400, 96),
    kernels.pool(32, 8, 2, 2),
    kernels.add(12, 3),
]


def every_schedule(kernel: kernels.Kernel, machine: Machine) -> Iterator[Schedule]:
    """All one-level schedules with any tile sizes (multiples of 16 for channels), any order of
    loops with reductions inside, any slots; that fit."""
    primitive = primitives_for(kernel, machine)[0]
    extents = kernel.anchor.extents
    reduction = set(kernel.anchor.reduction)
    sizes = [
        [extent]
        if extent <= 2 or dim in ("kh", "kw") or dim in primitive.whole
        else sorted({*range(16, extent, 16), extent})
        if dim in primitive.multiples
        else sorted({-(-extent // n) for n in range(1, extent + 1)})
        for dim, extent in extents.items()
    ]
    names = [o.name for o in kernel.operands if o.role != "bias"]
    for choice in product(*sizes):
        tile = dict(zip(extents, choice, strict=True))
        loops = [dim for dim in extents if tile[dim] < extents[dim]]
        outer = [dim for dim in loops if dim not in reduction]
        inner = [dim for dim in loops if dim in reduction]
        for slots in product((1, 2), repeat=len(names)):
            buffers = dict(zip(names, slots, strict=True))
            if "w" in buffers:
                buffers["b"] = buffers["w"]
            for first, last in product(permutations(outer), permutations(inner)):
                level = Level("nbin", tuple(tile.items()), (*first, *last))
                yield Schedule(primitive.name, (level,), tuple(buffers.items()))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", TINY, ids=lambda kernel: kernel.symbol)
def test_no_schedule_at_all_runs_faster(kernel: kernels.Kernel) -> None:
    """Against the event simulation of every schedule, not only those of the pruned space."""
    best, sizes = float("inf"), dict[object, bool]()
    for schedule in every_schedule(kernel, SMALL):
        key = (schedule.levels[0].tile, schedule.buffers)
        if key not in sizes:
            used = buffer_bytes(kernel, schedule, SMALL)
            sizes[key] = all(used[m] <= (SMALL.memory(m).bytes or 0) for m in used)
        if sizes[key]:
            best = min(best, run(kernel, schedule, SMALL).cycles)
    found = Planner(SMALL, timer=timer(SMALL)).plan(kernel)
    assert found.timed_cycles is not None
    assert found.timed_cycles <= best * 1.001
    untimed = Planner(SMALL).plan(kernel)
    assert run(kernel, untimed.schedule, SMALL).cycles <= best * 1.05


@pytest.mark.parametrize("kernel", TINY, ids=lambda kernel: kernel.symbol)
def test_the_cut_loses_nothing(kernel: kernels.Kernel) -> None:
    """The least cost of the whole space, priced without bounds or blocks, is found."""
    primitive = primitives_for(kernel, SMALL)[0]
    costs = np.concatenate([one.cost for one in price(build_space(kernel, SMALL, primitive))])
    if costs.min() > granule_bound(kernel, SMALL, primitive) * (1 + FAR):
        wider = build_space(kernel, SMALL, primitive, efforts=EFFORTS[-1:])
        costs = np.concatenate([costs, *(one.cost for one in price(wider))])
    found = search(kernel, SMALL, primitive, Budget(), 32)
    assert found.candidates[0].cost == pytest.approx(float(costs.min()), rel=1e-12)
    kinds = np.unique([float(f"{cost:.7g}") for cost in costs[np.isfinite(costs)]])
    listed = [float(f"{candidate.cost:.7g}") for candidate in found.candidates]
    assert listed == sorted(listed)
    # Edges that only others of a block have may move a price by less than a thousandth.
    for kind in kinds[kinds < listed[-1]]:
        assert np.min(np.abs(np.array(listed) / kind - 1)) < 1e-3
    assert len({candidate.kind for candidate in found.candidates}) == len(found.candidates)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(48, 128, 24, 5), (512, 512, 14, 3)])
def test_sizes_below_the_granule_are_taken_where_memory_is_small(
    size: tuple[int, int, int, int],
) -> None:
    """Few inputs at a time leave room for more pixels, which the weights are loaded for."""
    kernel, small = kernels.conv(*size), machine(SMALLEST)
    primitive = small.primitive("conv")
    plain = np.concatenate([one.cost for one in price(build_space(kernel, small, primitive))])
    found = search(kernel, small, primitive, Budget(), 1).candidates[0]
    assert dict(found.schedule.levels[-1].tile)["ci"] < primitive.multiples["ci"]
    assert found.cost < 0.85 * plain.min()


@pytest.mark.slow
@given(
    kernel=st.sampled_from([*TINY, kernels.conv(24, 40, 12, 3, 2), kernels.dense(90, 700)]),
    memory=st.sampled_from(["nbin", "nbout", "sb"]),
    sizes=st.tuples(st.integers(20, 256), st.integers(20, 256)),
)
@settings(max_examples=40, deadline=None)
def test_more_memory_never_costs_more(
    kernel: kernels.Kernel, memory: str, sizes: tuple[int, int]
) -> None:
    less, more = (
        Planner(kernels.variant(SMALL, **{memory: 64 * size})).plan(kernel)
        for size in sorted(sizes)
    )
    assert more.predicted_cycles <= less.predicted_cycles * 1.005 + 1


@pytest.mark.slow
@given(
    kernel=st.sampled_from(TINY),
    bandwidths=st.tuples(st.integers(2, 200), st.integers(2, 200)),
)
@settings(max_examples=30, deadline=None)
def test_more_bandwidth_never_costs_more(
    kernel: kernels.Kernel, bandwidths: tuple[int, int]
) -> None:
    less, more = (
        Planner(kernels.variant(SMALL, bandwidth=float(b))).plan(kernel) for b in sorted(bandwidths)
    )
    assert more.predicted_cycles <= less.predicted_cycles * 1.005


def test_the_timer_decides_among_the_best() -> None:
    kernel = kernels.conv(64, 64, 20, 1)
    asked: list[Schedule] = []

    def prefer_later(_: kernels.Kernel, schedule: Schedule) -> float:
        asked.append(schedule)
        return 1e6 - len(asked)

    budget = Budget(timed=5, margin=1e9, greedy=False)
    found = Planner(MACHINE, timer=prefer_later, budget=budget).plan(kernel)
    assert len(asked) == len(set(asked)) == found.timed == 5
    assert found.schedule == asked[-1]
    assert found.timed_cycles == found.cycles == 1e6 - 5
    assert Planner(MACHINE).plan(kernel).schedule == asked[0]


def test_a_schedule_that_the_lowering_refuses_is_not_taken() -> None:
    """A timer that refuses the best schedule by cost: the next one is the plan."""
    kernel = kernels.conv(64, 64, 20, 1)
    best = Planner(MACHINE).plan(kernel).schedule

    def time(_: kernels.Kernel, schedule: Schedule) -> float:
        if schedule == best:
            raise refuse("lower-registers", "too many registers")
        return 1e6

    found = Planner(MACHINE, timer=time, budget=Budget(timed=3, margin=1e9)).plan(kernel)
    assert found.schedule != best
    assert found.timed_cycles == 1e6


def test_plans_are_kept_without_the_names_of_the_kernel_that_asked() -> None:
    kernel = kernels.conv(64, 64, 20, 1)
    times = iter([1010.0, 1000.0, 1003.0])
    cache: PlanCache = {}
    budget = Budget(timed=3, margin=1e9, settled=-1.0, greedy=False)
    found = Planner(MACHINE, timer=lambda *_: next(times), budget=budget, cache=cache).plan(kernel)
    assert (found.timed_cycles, found.timed) == (1000.0, 3)
    (known,) = cache.values()
    again = Planner(MACHINE, timer=lambda *_: next(times), budget=budget, cache=cache).plan(kernel)
    assert again.schedule == found.schedule != known.schedule


def test_a_greedy_tiling_that_wins_is_taken() -> None:
    kernel = kernels.conv(64, 64, 20, 1)
    liked = Planner(MACHINE, search=Greedy("one", 1)).plan(kernel).schedule

    def time(_: kernels.Kernel, schedule: Schedule) -> float:
        return 1e6 if schedule == liked else 1.001e6

    found = Planner(MACHINE, timer=time, budget=Budget(timed=1)).plan(kernel)
    assert (found.schedule, found.timed_cycles) == (liked, 1e6)


@pytest.mark.slow
def test_the_best_of_each_primitive_may_cost_more() -> None:
    """The cost may misjudge all schedules of a primitive; it is timed all the same."""
    first = MACHINE.primitives_for("conv")[0]
    other = first.model_copy(update={"name": "other", "cycles": f"1.12*({first.cycles})"})
    both = MACHINE.model_copy(update={"primitives": (first, other)})
    kernel = kernels.conv(64, 64, 20, 3)
    asked: list[str] = []

    def prefer_other(_: kernels.Kernel, schedule: Schedule) -> float:
        asked.append(schedule.primitive)
        return Planner(MACHINE).plan(kernel).predicted_cycles - (schedule.primitive == "other")

    budget = Budget(settled=-1.0, greedy=False)
    found = Planner(both, timer=prefer_other, budget=budget).plan(kernel)
    assert found.schedule.primitive == "other"
    assert asked.count("other") == 1
    few = Budget(settled=-1.0, greedy=False, firsts=0.05)
    assert (
        Planner(both, timer=prefer_other, budget=few).plan(kernel).schedule.primitive == first.name
    )


def test_timing_stops_at_the_bound_and_at_its_budget() -> None:
    kernel = kernels.conv(64, 64, 28, 3)
    calls: list[float] = []

    def at_bound(_: kernels.Kernel, schedule: Schedule) -> float:
        calls.append(0.0)
        return Planner(MACHINE).plan(kernel).granule_bound * 1.002

    alone = Budget(greedy=False)
    assert Planner(MACHINE, timer=at_bound, budget=alone).plan(kernel).timed == len(calls) == 1
    few = Budget(timed_tiles=1, settled=-1.0, greedy=False)
    assert Planner(MACHINE, timer=timer(MACHINE), budget=few).plan(kernel).timed == 1


@pytest.mark.parametrize(("buffers", "start"), crossed((1, 2), ("one", "granule")))
def test_the_greedy_planner_never_wins(start: str, buffers: int) -> None:
    known = timer(MACHINE)
    for kernel in (kernels.conv(64, 64, 20, 1), kernels.conv(24, 40, 13, 5)):
        greedy = Greedy(start, buffers)
        # Its tiling's time, and that no other schedule has: a cost model that errs against it.
        liked = Planner(MACHINE, search=greedy).plan(kernel).schedule

        def time(one: kernels.Kernel, schedule: Schedule, liked: Schedule = liked) -> float:
            return known(one, schedule) * (0.5 if schedule == liked else 1.0)

        best = Planner(MACHINE, search=greedy, timer=time).plan(kernel).cycles
        found = Planner(MACHINE, timer=time).plan(kernel)
        assert found.cycles <= best
        assert time(kernel, found.schedule) == found.timed_cycles


def test_bounds_on_the_search_are_kept_and_reported() -> None:
    kernel = kernels.conv(128, 256, 14, 1, residual=True)
    full = Planner(MACHINE).plan(kernel)
    assert full.complete
    assert full.cuts == ()
    assert full.candidates > 1000
    cut = Planner(MACHINE, budget=Budget(priced=1)).plan(kernel)
    assert (cut.complete, cut.cuts) == (False, ("priced",))
    assert cut.priced < full.priced
    assert cut.predicted_cycles >= full.predicted_cycles
    cut = Planner(MACHINE, budget=Budget(rows=200)).plan(kernel)
    assert (cut.complete, cut.cuts) == (False, ("rows",))


def test_the_least_of_several_primitives_is_taken() -> None:
    kernel = kernels.conv(32, 32, 12, 3)
    fast = MACHINE.primitive("conv").model_copy(
        update={"name": "fast", "cycles": "n*ceil(co/32)*ceil(ci/32)*kh*kw*oh*ow"}
    )
    machine = MACHINE.model_copy(update={"primitives": (*MACHINE.primitives, fast)})
    found = Planner(machine).plan(kernel)
    assert found.schedule.primitive == "fast"
    assert found.granule_bound < Planner(MACHINE).plan(kernel).granule_bound


def test_primitives_whose_layouts_agree_come_first() -> None:
    kernel = kernels.conv(32, 32, 12, 3)
    stages = tuple(
        replace(
            stage,
            inputs=tuple(
                replace(o, layout="OHWI" if o.role == "weight" else "NHWC")
                if len(o.shape) == 4
                else o
                for o in stage.inputs
            ),
            output=replace(stage.output, layout="NHWC"),
        )
        for stage in kernel.stages
    )
    kernel = replace(kernel, stages=stages)
    conv = MACHINE.primitive("conv")
    operands = {
        role: storage.model_copy(update={"layout": "NCHW" if role == "input" else ""})
        for role, storage in conv.operands.items()
    }
    other = conv.model_copy(update={"name": "fast", "cycles": "n", "operands": operands})
    machine = MACHINE.model_copy(update={"primitives": (other, *MACHINE.primitives)})
    assert Planner(machine).plan(kernel).schedule.primitive == "conv"


def test_long_output_vectors_stay_while_weights_come_tile_by_tile() -> None:
    found = Planner(MACHINE).plan(kernels.dense(9216, 4096))
    outer, inner = found.schedule.levels
    assert outer.memory == "nbout"
    assert dict(outer.tile)["co"] >= 1024
    assert inner.order == ("ci", "co")
    # Each input tile is loaded once for all of the outputs held: little but weights is moved.
    assert found.moved_bytes < 1.01 * 2 * 9216 * 4096 + 4 * 4096 * 20
