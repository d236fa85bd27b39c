"""Simulated times of kernels: the thesis' product under the tilings that are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices, Tiling, matmul
from tests.slow import but_fast

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.program import Buffer, Place, Program, Tensor
from tilewright.targets.ascend.timing import simulate

PRODUCT = Matrices(512, 768, 768)

CASES = [
    (Tiling(256, 128, 256, 256, 128, 256), {64: 0.66, 128: 0.68}),
    (Tiling(256, 64, 256, 256, 64, 256, l1=2, l0=2, ub=2), {37.5: 0.57, 64: 0.88}),
    (
        Tiling(256, 64, 128, 256, 64, 128, l1=2, l0=2, l0c=2, ub=2),
        {37.5: 0.39, 64: 0.65, 128: 0.97},
    ),
    (
        Tiling(128, 128, 128, 128, 128, 128, l1=2, l0=2, l0c=2, ub=2),
        {37.5: 0.29, 64: 0.49, 128: 0.97},
    ),
    (
        Tiling(256, 768, 64, 256, 64, 64, l1=2, l0=2, l0c=2, ub=2),
        {37.5: 0.755, 64: 0.86, 128: 0.94},
    ),
]
"""Part of the cube's peak by bytes of main memory a cycle."""


def core_with(rate: float) -> DaVinci:
    return replace(ASCEND_910, paths={**ASCEND_910.paths, ("gm", "cbuf"): rate})


@pytest.mark.parametrize("number", but_fast(range(len(CASES)), [1]))
def test_the_cubes_share(number: int) -> None:
    """The thesis' best tile is not the best here: it leaves no room for a second buffer."""
    tiling, shares = CASES[number]
    program = synchronised(matmul(PRODUCT, tiling, ASCEND_910))
    for rate, share in shares.items():
        found = simulate(program, core_with(rate))
        assert found.busy["M"] == 73_728
        assert abs(found.cube - share) < 0.01


def test_a_load_and_an_operation() -> None:
    """Ten blocks at 64 bytes a cycle, a latency, one repeat, and the store."""
    x, y = Tensor("x", 1024), Tensor("y", 1024, written=True)
    home = Buffer("u", "ub", 0, 256)
    place = Place(home)
    body = [
        isa.copy(place, Place(x), 1, 8),
        isa.vector("vrelu", place, (place,), 1, (1, 1), (8, 8)),
        isa.copy(Place(y), place, 1, 8),
    ]
    program = synchronised(Program("kernel", (x, y), list(body), (home,)))
    found = simulate(program, ASCEND_910)
    # Issued in the first cycle; 256 bytes take 4 cycles each way.
    assert found.cycles == 1 + 4 + 100 + 1 + 4 + 100
    assert found.main_bytes == 512


def test_flags_cost_what_they_order() -> None:
    tiling = Tiling(64, 64, 64, 32, 32, 32, l1=2, l0=2)
    program = matmul(Matrices(128, 64, 128), tiling, ASCEND_910)
    free = simulate(program, ASCEND_910)
    ordered = simulate(synchronised(program), ASCEND_910)
    assert ordered.cycles > free.cycles
    assert ordered.busy == free.busy
