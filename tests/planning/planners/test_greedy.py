"""DLIR's partitioning: what it promises of capacity, steps and growth, beside the exact planner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.planning import planning_kernels as kernels
from tests.planning.event_reference import buffer_bytes
from tests.targets.generic.kernel_cases import conv_case
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.cost.bounds import primitives_for
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.greedy import AUTOMATIC, Greedy, access_cycles, grow
from tilewright.planning.space.footprint import uses_of
from tilewright.planning.space.sizes import tile_sizes
from tilewright.planning.space.tilings import Space, uncrossed
from tilewright.targets.cambricon.capabilities import CambriconMove
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.timer import timer
from tilewright.targets.shidiannao.machine import MACHINE as SHIDIANNAO
from tilewright.tile.lower import tile

KERNELS = [
    kernels.conv(32, 48, 14, 3),
    kernels.conv(3, 64, 40, 7, stride=2),
    kernels.conv(64, 64, 10, 1, residual=True),
    kernels.dense(1024, 256),
    kernels.depthwise(96, 20),
    kernels.pool(64, 28, 3, 2),
    kernels.lrn(96, 14),
    kernels.softmax(3, 700),
    kernels.add(64, 20),
]
NARROW = MACHINE.with_values({"memory.nbin.bytes": 2048, "memory.nbout.bytes": 1024})
MACHINES = {"cambricon-x": MACHINE, "shidiannao": SHIDIANNAO}
OPTIONS = [Greedy(start, buffers) for start in ("one", "granule") for buffers in (AUTOMATIC, 1, 2)]


@pytest.mark.few(4)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_tiles_fit_and_never_beat_the_exact_planner(kernel: Kernel, machine: Machine) -> None:
    best = Planner(machine).plan(kernel)
    for greedy in OPTIONS:
        found = Planner(machine, search=greedy).plan(kernel)
        assert found.planner == "greedy" and found.priced >= 1
        for memory, used in buffer_bytes(kernel, found.schedule, machine).items():
            assert used <= (machine.memory(memory).bytes or 0)
        assert found.predicted_cycles >= best.predicted_cycles * (1 - 1e-9)
        assert found.granule_bound == best.granule_bound
        slots = {count for _, count in found.schedule.buffers}
        assert slots <= ({1} if greedy.buffers == 1 else {1, 2})


def space_of(kernel: Kernel, machine: Machine = MACHINE, *, granular: bool = False) -> Space:
    primitive = primitives_for(kernel, machine)[0]
    uses = uses_of(kernel, machine, primitive)
    sizes = tile_sizes(kernel, primitive, uses, cut=False, granular=granular)
    return uncrossed(kernel, machine, primitive, uses, sizes)


def test_a_fully_connected_layer_grows_as_the_rule_says() -> None:
    """The rule written out for one layer, with the access time of the thesis' example."""
    inputs, outputs = 1024, 256
    kernel = kernels.dense(inputs, outputs)
    nbin, nbout, sb = (MACHINE.memory(m).bytes or 0 for m in ("nbin", "nbout", "sb"))

    def fits(i: int, o: int) -> bool:
        wide = 4 if i < inputs else 2
        up = -(-o // 16) * 16  # SB holds weights and biases in blocks of 16 outputs
        return 2 * i <= nbin / 2 and wide * o <= nbout / 2 and up * (2 * i + 4) <= sb / 2

    def access(i: int, o: int) -> float:
        ci, co = -(-inputs // i), -(-outputs // o)
        weights = inputs * outputs * 2 / 128 + ci * co * 100
        # A bias travels with the weights of its outputs, each time that they do.
        biases = outputs * 4 / 128 * ci
        neurons = (inputs * 2 / 128 * co + ci * co * 100) if ci > 1 else inputs * 2 / 128 + 100
        return weights + biases + neurons + outputs * 2 / 128 + co * 100

    ladder = {
        extent: sorted({-(-extent // n) for n in range(1, extent + 1)})
        for extent in (inputs, outputs)
    }
    i = o = 1
    steps = 1
    while True:
        larger = [
            (access(*way), way)
            for way in (
                (i, next((size for size in ladder[outputs] if size > o), 0)),
                (next((size for size in ladder[inputs] if size > i), 0), o),
            )
            if all(way)
        ]
        steps += len(larger)
        fitting = [way for way in larger if fits(*way[1])]
        if not fitting:
            break
        i, o = min(fitting, key=lambda way: way[0])[1]
    found = Planner(MACHINE, search=Greedy(buffers=2)).plan(kernel)
    tile = dict(found.schedule.levels[-1].tile)
    assert (tile["ci"], tile["co"]) == (i, o)
    assert found.candidates == steps


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_no_dim_can_grow_further(kernel: Kernel) -> None:
    for slots in (1, 2):
        space = space_of(kernel)
        tiling, steps = grow(space, slots)
        if tiling is None:
            assert steps == 1
            continue
        assert tiling.rows == 1
        raised = sum(len(s) - 1 - int(tiling.index[d][0]) for d, s in space.sizes.items())
        assert raised < steps <= 1 + (raised + 1) * len(space.sizes)
        for dim in space.sizes:
            at = int(tiling.index[dim][0])
            if not at:
                continue
            index = dict(tiling.index) | {dim: np.array([at - 1])}
            larger = replace(tiling, index=index)
            memories = {use.memory.name: use.memory for use in space.uses}
            used = {
                name: sum(int(larger.slot_bytes(u)[0]) for u in space.uses if u.memory == memory)
                for name, memory in memories.items()
            }
            assert any(used[name] * slots > (m.bytes or 0) for name, m in memories.items())


def test_access_time_is_that_of_all_transfers_in_a_row() -> None:
    """Everything in one tile: each operand once, its latency and its bytes."""
    kernel = kernels.dense(64, 32)
    space = space_of(kernel)
    index = {dim: np.array([0]) for dim in space.sizes}
    cycles = access_cycles(replace(space, index=index))[0]
    moved = 64 * 2 + 64 * 32 * 2 + 32 * 4 + 32 * 2
    assert cycles[0] == pytest.approx(moved / 128 + 3 * 100)


def test_steps_are_few_and_the_granule_saves_more() -> None:
    kernel = kernels.conv(256, 384, 13, 3)
    exact = Planner(MACHINE).plan(kernel)
    one, granule = (
        Planner(MACHINE, search=Greedy(start)).plan(kernel) for start in ("one", "granule")
    )
    assert granule.candidates < one.candidates < exact.candidates


def test_single_buffers_where_nothing_fits_twice() -> None:
    """SB holds the smallest tile of weights once."""
    machine = kernels.variant(MACHINE, nbin=1024, nbout=1024, sb=1024)
    found = Planner(machine, search=Greedy("granule")).plan(kernels.conv(64, 64, 6, 5))
    used = buffer_bytes(kernels.conv(64, 64, 6, 5), found.schedule, machine)
    assert used["sb"] <= 1024
    assert {count for _, count in found.schedule.buffers} <= {1, 2}


def test_the_timer_times_the_one_plan_and_nothing_fitting_is_refused() -> None:
    asked: list[object] = []

    def timer(kernel: Kernel, schedule: object) -> float:
        asked.append(schedule)
        return 12345.0

    found = Planner(MACHINE, timer=timer, search=Greedy(buffers=2)).plan(kernels.dense(100, 40))
    assert asked == [found.schedule] and found.cycles == 12345.0 and found.timed == 1
    tiny = kernels.variant(MACHINE, nbin=32, nbout=32, sb=32)
    with pytest.raises(TilewrightError, match="plan-capacity"):
        Planner(tiny, search=Greedy(buffers=2)).plan(kernels.conv(16, 16, 8))


@pytest.mark.parametrize("latency", [400])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_double_buffering_is_off_where_it_loses(kernel: Kernel, latency: int) -> None:
    values = {f"move.{move.name}.latency": latency for move in MACHINE.moves}
    machine = MACHINE.with_values(values)
    clock = timer(machine)
    found, single, double = (
        Planner(machine, timer=clock, search=Greedy("granule", buffers)).plan(kernel)
        for buffers in (AUTOMATIC, 1, 2)
    )
    assert found.cycles == min(single.cycles, double.cycles)
    assert found.candidates == single.candidates + double.candidates


def test_a_fully_connected_layer_loses_by_double_buffering_at_high_latency() -> None:
    values = {f"move.{move.name}.latency": 400 for move in MACHINE.moves}
    machine = MACHINE.with_values(values)
    clock = timer(machine)
    layer = kernels.dense(2048, 1024)
    double = Planner(machine, timer=clock, search=Greedy("granule", 2)).plan(layer)
    found = Planner(machine, timer=clock, search=Greedy("granule")).plan(layer)
    assert found.cycles < double.cycles
    assert all(count == 1 for _, count in found.schedule.buffers)


@pytest.mark.slow
def test_tiles_of_a_grouped_convolution_have_no_holes() -> None:
    """Several groups in a tile, and parts of each group's channels, would leave gaps between."""
    for seed in range(12):
        case = conv_case(seed, True)
        if "g" not in case.kernel.anchor.extents:
            continue
        for search in (None, *OPTIONS):
            schedule = Planner(NARROW, search=search).plan(case.kernel).schedule
            assert tile(case.kernel, schedule, NARROW)


def test_what_is_loaded_once_is_not_doubled() -> None:
    kernel = kernels.conv(16, 16, 28, 3)
    weights = 2 * 16 * 16 * 9
    tight = kernels.variant(MACHINE, sb=weights + 4 * 16)
    for buffers in (1, 2):
        found = Planner(tight, search=Greedy("granule", buffers)).plan(kernel).schedule
        weight = next(use for use in kernel.inputs if use.role == "weight")
        assert found.slots(weight.name) == 1
        assert {"co", "ci"}.isdisjoint(d for level in found.levels for d in level.order)


def test_runs_of_a_linear_move_are_transfers_of_their_own() -> None:
    kernel = kernels.conv(64, 64, 28, 1)
    costs: list[float] = []
    for linear in (False, True):
        moves = tuple(
            move.model_copy(update={"own": CambriconMove(linear=linear)}) for move in MACHINE.moves
        )
        space = space_of(kernel, MACHINE.model_copy(update={"moves": moves}), granular=True)
        smallest = {dim: np.array([len(column) - 1]) for dim, column in space.sizes.items()}
        costs.append(float(access_cycles(replace(space, index=smallest))[0][0]))
    assert costs[1] > costs[0]
