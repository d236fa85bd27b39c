"""Results that have one slot leave it part by part, while their other parts are computed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning.planning_kernels import conv
from tests.tile.test_late_loads import kernel
from tests.tile.tile_kernels import case, machine, random_schedule
from tilewright.planning import Planner
from tilewright.planning.cost.columns import price
from tilewright.planning.cost.part_stores import standstill
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.schedules import schedule_of
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.tilings import build_space
from tilewright.targets.cambricon_x.machine import machine as cambricon_x
from tilewright.targets.generic.timer import timer
from tilewright.tile.dialect import ComputeOp, MoveOp, ProgramOp
from tilewright.tile.interpreter import run
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.queues import Queues

MACHINE = cambricon_x()
WHOLE = MACHINE.model_copy(update={"part_stores": False})


def schedule(of: Kernel, slots: dict[str, int], ci: int) -> Schedule:
    """Tiles of 16 channels of 26 pixels, computed 13 at a time; slots by role, else 1."""
    whole = of.anchor.extents | {"co": 16, "ow": 26}
    sizes = [whole, whole | {"ci": ci}, whole | {"ci": ci, "ow": 13}]
    orders = [("co", "ow"), ("ci",), ("ow",)]
    levels = tuple(
        Level(memory, tuple(tile_of.items()), order)
        for memory, tile_of, order in zip(("nbout", "nbin", "compute"), sizes, orders, strict=True)
    )
    kinds = tuple((one.name, slots.get(one.role, 1)) for one in of.operands)
    return Schedule("conv", levels, kinds)


def of_kind(program: ProgramOp) -> tuple[MoveOp, ComputeOp]:
    """The store and the compute of a program."""
    (store,) = (op for op in program.walk() if isinstance(op, MoveOp) and not op.loads)
    (compute,) = (op for op in program.walk() if isinstance(op, ComputeOp))
    return store, compute


def test_each_part_waits_for_its_own_computes_and_its_own_store() -> None:
    of = kernel(co=32, ci=128)
    program = tile(of, schedule(of, {"input": 2, "weight": 2, "bias": 2}, 64), MACHINE)
    store, compute = of_kind(program)
    queues = Queues(Order(program))
    # Four tiles of two steps of two parts; the computes of a tile's parts are its third and fourth.
    np.testing.assert_array_equal(queues.waits(store)["compute"], [3, 4, 7, 8, 11, 12, 15, 16])
    first = queues.waits(compute)["store"].reshape(4, 2, 2)
    np.testing.assert_array_equal(first[:, 0], [[0, 0], [1, 2], [3, 4], [5, 6]])


def test_results_with_two_slots_and_short_computes_leave_whole() -> None:
    of = kernel(co=32, ci=128)
    two = {"input": 2, "weight": 2, "bias": 2, "output": 2}
    for slots, ci, there in (({}, 64, True), (two, 64, False), ({}, 16, False)):
        store, _ = of_kind(tile(of, schedule(of, slots, ci), MACHINE))
        assert (store.parent_block() is not store.buffer.parent_block()) == there
    store, _ = of_kind(tile(of, schedule(of, {}, 64), WHOLE))
    assert store.parent_block() is store.buffer.parent_block()


def test_parts_that_are_stored_keep_the_meaning_however_the_engines_run() -> None:
    found = 0
    toy = machine(part_stores=True)
    for seed in range(60):
        example = case(seed)
        program = tile(example.kernel, random_schedule(example, toy, seed), toy)
        stores = [op for op in program.walk() if isinstance(op, MoveOp) and not op.loads]
        if any(op.parent_block() is not op.buffer.parent_block() for op in stores):
            found += 1
            for number in range(3):
                example.check(run(program, example.feeds, toy, interleave=number)["y"])
    assert found >= 5


@pytest.mark.parametrize(
    ("parts", "compute", "cycles"), [(1, 400, 132), (2, 50, 132), (2, 150, 0), (4, 60, 72)]
)
def test_a_chain_of_stores_stands_in_the_way_as_far_as_computes_are_shorter(
    parts: int, compute: int, cycles: int
) -> None:
    """Latency 100 and 32 cycles of bytes, computes of equal parts before and behind: by hand."""
    move = MACHINE.move("nbout", MACHINE.main)
    done = [0.0] * parts
    for part in range(parts):  # of the tile before, which ends at 0
        ready = -(parts - 1 - part) * compute
        done[part] = max(ready, done[part - 1] if part else ready) + 100 + 32 / parts
    end = 0.0
    for part in range(parts):
        end = max(end, done[part]) + compute
    assert standstill(move, 32 * 128, compute, parts) == end - parts * compute == cycles


def test_deep_layers_lose_nothing_to_their_stores() -> None:
    """512 to 2048 channels with a residual, as in ResNet-50: 94.5 % of the bound without."""
    of = kernel(co=2048, ci=512)
    parts, whole = (Planner(one, timer=timer(one)).plan(of) for one in (MACHINE, WHOLE))
    assert parts.cycles < 0.96 * whole.cycles
    assert parts.efficiency > 0.99
    assert abs(parts.predicted_cycles / parts.cycles - 1) < 0.01


def test_more_parts_than_the_queue_holds_leave_whole() -> None:
    """Behind stores that wait for a place in their queue, the next tile's loads are not issued."""
    of = kernel(co=32, ci=256)
    levels = schedule(of, {}, 128).levels[:2]
    for size, there in ((7, True), (5, False)):  # 26 pixels in four parts, and in six
        wide = dict(levels[1].tile) | {"co": 32, "ci": 128}
        outer = Level("nbout", tuple((dict(levels[0].tile) | {"co": 32}).items()), ("ow",))
        inner = Level("nbin", tuple(wide.items()), ("ci",))
        parts = Level("compute", tuple((wide | {"ow": size}).items()), ("ow",))
        store, _ = of_kind(tile(of, Schedule("conv", (outer, inner, parts)), MACHINE))
        assert (store.parent_block() is not store.buffer.parent_block()) == there


def test_the_cost_knows_residencies_of_fewer_parts() -> None:
    """Of seven tiles along a row two or three wait together, and one is alone at the end."""
    of = conv(64, 48, 21, 3)
    space = build_space(of, MACHINE, MACHINE.primitive("conv"))
    known = timer(MACHINE)
    errors = list[float]()
    for one in price(space):
        grown = one.arrangement.grown
        short = np.zeros(space.rows, np.bool_)
        for dim, count in grown.items():
            short |= (space.trips(dim) % count == 1) & (count <= 4)
        single = one.arrangement.slots[of.output.name] == 1
        near = np.flatnonzero(np.isfinite(one.cycles) & short & single)
        for row in near[np.argsort(one.cycles[near], kind="stable")][:2]:
            cycles = known(of, schedule_of(space, one.arrangement, int(row)))
            errors.append(float(one.cycles[row]) / cycles - 1)
    assert len(errors) > 4
    assert np.mean(np.abs(errors)) < 0.005
