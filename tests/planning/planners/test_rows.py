"""The baseline: rows that are fetched anew for each use."""

from __future__ import annotations

import pytest

from tests.planning.planners.test_cores import in_floats
from tests.planning.planning_kernels import conv, dense, pool
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.rows import Rows, row_dims
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X
from tilewright.targets.sunway.machine import MACHINE


def test_rows_lie_along_the_lowest_dims() -> None:
    assert row_dims(in_floats(conv(16, 32, 14))) == {"ow", "kw"}
    # Weights lie along the reduction.
    assert row_dims(in_floats(dense(256, 128))) == {"ci", "co"}
    assert row_dims(in_floats(pool(16, 12, 2, 2))) == {"ow", "kw"}


def test_nothing_else_is_used_again() -> None:
    kernel = in_floats(conv(16, 128, 14))
    found = Planner(MACHINE, search=Rows()).plan(kernel)
    assert found.schedule.shared == "co"
    assert dict(found.schedule.levels[0].tile) == {"co": 2}
    tile = {"n": 1, "co": 1, "oh": 1, "ow": 14, "ci": 1, "kh": 1, "kw": 3}
    assert dict(found.schedule.levels[1].tile) == tile
    assert all(slots == 1 for _, slots in found.schedule.buffers)
    # A row of the input for every row of the result, channel and row of the window.
    assert found.moved_bytes > 128 * 14 * 16 * 3 * 13 * 4


@pytest.mark.parametrize(
    "kernel",
    [in_floats(k) for k in (conv(16, 128, 14), dense(4096, 1000), pool(64, 28, 2, 2))],
    ids=lambda kernel: kernel.symbol,
)
def test_it_loses(kernel: Kernel) -> None:
    assert (
        Planner(MACHINE, search=Rows()).plan(kernel).cycles > Planner(MACHINE).plan(kernel).cycles
    )


def test_rows_that_do_not_fit_are_halved() -> None:
    found = Planner(MACHINE, search=Rows()).plan(in_floats(dense(9216, 64)))
    assert dict(found.schedule.levels[-1].tile)["ci"] == 4608


def test_few_channels_leave_cores_idle() -> None:
    found = Planner(MACHINE, search=Rows()).plan(in_floats(conv(3, 6, 28)))
    assert dict(found.schedule.levels[0].tile) == {"co": 1}


def test_other_machines_run_it_too() -> None:
    found = Planner(CAMBRICON_X, search=Rows()).plan(conv(16, 32, 14))
    assert found.planner == "rows" and found.schedule.shared == ""
