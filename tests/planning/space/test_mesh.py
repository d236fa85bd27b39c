"""Cuts of a result for cores in a mesh, and what they move."""

from __future__ import annotations

from math import ceil, prod

import pytest

from tests.planning.planners.test_cores import in_floats
from tests.planning.planning_kernels import conv, dense
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.ldm.planner import Ldm, moved, shared_dims
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.mesh import Division, divisions, in_step, needed_by_all
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.mesh import MESH

SLOW = MACHINE.with_values({"move.get.bytes_per_cycle": 0.5})
KERNELS = [in_floats(k) for k in (conv(64, 128, 28), conv(32, 48, 14), conv(64, 64, 56, 1))]


def cuts_of(kernel: Kernel) -> list[Division]:
    dims = shared_dims(kernel, agreeing(kernel, MACHINE)[0])
    return divisions(dims, kernel.anchor.extents, {}, MESH.side)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_every_core_has_one_part(kernel: Kernel) -> None:
    cuts = cuts_of(kernel)
    assert len(cuts) >= 4
    extents = kernel.anchor.extents
    for cut in cuts:
        for part in (cut.rows, cut.columns):
            assert prod(ceil(extents[dim] / size) for dim, size in part) == MESH.side
        assert not set(dict(cut.rows)) & set(dict(cut.columns))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_what_is_exchanged_does_not_depend_on_the_other_axis(kernel: Kernel) -> None:
    operands = {operand.name: operand for operand in kernel.inputs}
    axes: set[str] = set()
    for cut in cuts_of(kernel):
        for name, axis in cut.exchanged(kernel):
            axes.add(axis)
            own, other = (cut.rows, cut.columns) if axis == "row" else (cut.columns, cut.rows)
            assert set(dict(own)) & operands[name].dims
            assert not set(dict(other)) & operands[name].dims
    assert axes == {"row", "column"}


def test_cores_whose_last_tiles_are_fewer_are_out_of_step() -> None:
    kernel = in_floats(conv(64, 60, 28))
    cut = next(c for c in cuts_of(kernel) if dict(c.rows) == {"co": 8} and "oh" in dict(c.columns))
    tile = dict(kernel.anchor.extents)
    # Of 60 channels seven cores have eight, and the last four: two tiles for one.
    assert in_step(kernel, cut.grid, tile)
    assert not in_step(kernel, cut.grid, tile | {"co": 4})


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_less_is_moved_and_the_plan_is_no_slower(kernel: Kernel) -> None:
    alone, shared = (Planner(SLOW, search=Ldm(mesh=mesh)).plan(kernel) for mesh in (None, MESH))
    assert alone.schedule.exchanged == () and shared.schedule.exchanged
    assert shared.moved_bytes < alone.moved_bytes / 2
    assert shared.predicted_cycles < alone.predicted_cycles
    # Nothing is moved less than once: the least of a cut is what the plan of it moves at least.
    least = min(moved(kernel, cut, MESH) for cut in cuts_of(kernel))
    assert shared.moved_bytes >= 4 * MESH.cores * least * 0.99


def test_without_enough_dims_nothing_is_exchanged() -> None:
    found = Planner(SLOW, search=Ldm(mesh=MESH)).plan(in_floats(dense(512, 256)))
    assert found.schedule.exchanged == ()


def test_schedules_keep_what_is_exchanged_in_json_and_text() -> None:
    found = Planner(SLOW, search=Ldm(mesh=MESH)).plan(KERNELS[0]).schedule
    assert Schedule.from_json(found.to_json()) == found
    assert " by row" in str(found) or " by column" in str(found)


def test_what_all_cores_need_one_loads_for_all() -> None:
    kernel = KERNELS[0]
    assert needed_by_all(kernel, {"co": 2}, 64) == (("x", "all"),)
    # 43 cores have a part, the others none: they would not meet.
    assert needed_by_all(kernel, {"co": 3}, 64) == ()
    alone = Planner(SLOW, search=Ldm()).plan(kernel)
    shared = Planner(SLOW, search=Ldm(mesh=MESH, broadcast=True)).plan(kernel)
    assert shared.schedule.exchanged == (("x", "all"),)
    assert shared.schedule.shared == alone.schedule.shared
    assert shared.moved_bytes < alone.moved_bytes / 4
    assert shared.predicted_cycles < alone.predicted_cycles
