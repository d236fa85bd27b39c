"""Tiles of held operands: a box in one run, and no partial sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.planning import planning_kernels as kernels
from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.planning.domain import Operand
from tilewright.planning.planners.greedy import Greedy
from tilewright.planning.space.residents import holding, usable
from tilewright.planning.space.tilings import build_space
from tilewright.targets.cambricon.machine import machine

SMALL = machine().with_values({"memory.msm.bytes": 24 << 10})


def runs(operand: Operand, tile: dict[str, int]) -> int:
    """Runs of neighbouring elements that the first tile touches, by listing them."""
    order = "NHWC" if operand.layout == "NHWC" else "NCHW"
    axes = ["NCHW".index(letter) for letter in order]
    touched = np.zeros([operand.shape[axis] for axis in axes], np.int64)
    dims = sorted(operand.dims)
    for index in product(*(range(tile[dim]) for dim in dims)):
        at = dict(zip(dims, index, strict=True))
        place = [
            axis.offset + sum(c * at.get(dim, 0) for dim, c in axis.terms)
            for axis in operand.access
        ]
        if all(0 <= i < extent for i, extent in zip(place, operand.shape, strict=True)):
            touched[tuple(place[axis] for axis in axes)] = 1
    flat = np.concatenate(([0], touched.reshape(-1)))
    return int((np.diff(flat) == 1).sum())


def test_every_tile_of_a_held_operand_is_one_run() -> None:
    kernel = holding(kernels.conv(6, 6, 5, kernel=1), ["x"], "vsm")
    (x,) = (one for one in kernel.operands if one.name == "x")
    extents = kernel.anchor.extents
    candidates = [dim for dim in extents if dim in x.dims and extents[dim] > 1]
    checked = set[bool]()
    for sizes in product(*(range(1, extents[dim] + 1) for dim in candidates)):
        tile = {**extents, **dict(zip(candidates, sizes, strict=True))}
        columns = {dim: np.array([size]) for dim, size in tile.items()}
        found = bool(usable(kernel, columns, SMALL)[0])
        checked.add(found)
        assert found == (runs(x, tile) == 1), tile
    assert checked == {True, False}


@pytest.mark.parametrize("planner", [None, Greedy()])
def test_no_plan_cuts_the_sums_of_a_held_result(planner: Greedy | None) -> None:
    """Where that is best for a result in main memory."""
    free = kernels.dense(1600, 512)
    cut = Planner(SMALL, search=planner).plan(free).schedule
    assert any(level.size("ci", 1600) < 1600 for level in cut.levels)
    held = Planner(SMALL, search=planner).plan(holding(free, ["y"], "vsm")).schedule
    assert all(level.size("ci", 1600) == 1600 for level in held.levels)


def test_where_no_small_tile_is_usable_a_large_one_is_found() -> None:
    """The greedy planner, whose tilings are tried beside, finds nothing to start from."""
    kernel = holding(kernels.pool(16, 12, 2, 2), ["x"], "vsm")
    with pytest.raises(TilewrightError, match="plan-capacity"):
        Greedy()(kernel, SMALL)
    found = Planner(SMALL, timer=lambda kernel, schedule: 1e6).plan(kernel).schedule
    assert all(level.size("ow", 6) == 6 for level in found.levels)


def test_the_space_of_a_held_operand_has_usable_tiles_alone() -> None:
    kernel = holding(kernels.conv(64, 96, 12), ["y"], "vsm")
    free = build_space(kernels.conv(64, 96, 12), SMALL, SMALL.primitive("conv"))
    space = build_space(kernel, SMALL, SMALL.primitive("conv"))
    assert usable(kernel, {dim: space.size(dim) for dim in space.index}, SMALL).all()
    assert 0 < space.rows < free.rows
