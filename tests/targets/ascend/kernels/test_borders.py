"""Planes with a border of one value, by the kernels that pools have for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, run

from tilewright.targets.ascend.kernels.borders import rows_around, rows_with_sides
from tilewright.targets.ascend.kernels.shares import share_of, spread
from tilewright.targets.ascend.kernels.vectors import number
from tilewright.targets.ascend.machine import ASCEND_910

CASES = [
    # planes, height, width, padding above, left, below, right, cores
    (4, 112, 112, (1, 1, 1, 1), 32),
    (1, 57, 9, (0, 2, 0, 1), 8),
    (3, 5, 7, (2, 0, 3, 0), 32),
    (40, 3, 4, (1, 0, 0, 2), 32),
    (2, 1, 1, (2, 2, 2, 2), 1),
    (1, 4, 600, (3, 1, 1, 0), 2),
]


@pytest.mark.parametrize("case", but_fast(CASES, CASES[1:4]))
def test_planes_get_a_border(case: tuple[int, int, int, tuple[int, ...], int]) -> None:
    planes, height, width, pads, cores = case
    x = np.random.default_rng(planes).normal(0, 1, (planes, height, width, 16)).astype(np.float16)
    above, left, below, right = pads
    around = ((0, 0), (above, below), (left, right), (0, 0))
    wanted = np.pad(x, around, constant_values=-np.inf)
    # Few rows fit, so that there are several tiles.
    core = replace(ASCEND_910, ub=65_536)
    shared = spread({"plane_block": planes, "line_block": height}, cores)
    sides = rows_with_sides(*shared, width, pads, core, number(float("-inf")), "sides")
    assert sides.blocks <= cores
    (outer,) = spread({"plane_block": planes}, cores)
    programs = [sides]
    if above or below:
        size = height, width
        programs.append(rows_around(outer, size, pads, core, number(float("-inf")), "around"))
    kernels = [(built(program), program.blocks) for program in programs]
    image = np.concatenate([x.ravel(), np.zeros(16, np.float16)])
    for order in (0, 5, 77):
        out = np.full(wanted.size + 16, np.nan, np.float16)
        for number_of, (kernel, blocks) in enumerate(kernels):
            given = {"out": out} if number_of else {"x": image, "out": out}
            run(kernel, given, order, blocks=blocks)
        np.testing.assert_array_equal(out[: wanted.size].reshape(wanted.shape), wanted)


@pytest.mark.parametrize("extents", [(4, 112), (1, 57), (64, 3), (31, 9), (5, 7)])
def test_axes_are_spread_over_cores(extents: tuple[int, int]) -> None:
    """Most cores have a part, the parts are runs of whole axes, and none is much shorter."""
    outer, inner = map(share_of, spread(dict(zip("ab", extents, strict=True)), 32))
    counts = [-(-share.extent // share.part) for share in (outer, inner)]
    assert 16 <= counts[0] * counts[1] <= 32
    assert counts[1] == 1 or outer.part == 1
    assert all(2 * share.shortest >= share.part for share in (outer, inner))
