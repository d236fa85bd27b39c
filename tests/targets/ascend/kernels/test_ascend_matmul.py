"""Products as emitted C on the host core: exact, in any order, and with the traffic foretold."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices, Tiling, matmul
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, empty, pack, run, unpack, whole_numbers

from tilewright.errors import TilewrightError
from tilewright.planning.planners.stationary import (
    KINDS,
    Kind,
    Product,
    Room,
    Stationary,
    Tile,
    best_tile,
)
from tilewright.planning.planners.stationary import tiles as all_tiles
from tilewright.targets.ascend.fields import check_fields
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.host import ORDERS, Kernel, Outcome
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import Flag, Program, trace
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.lower import tile as tile_program

CASES = {
    "one level": (Matrices(64, 96, 48), Tiling(16, 32, 16, 16, 32, 16)),
    "two levels": (Matrices(64, 96, 48), Tiling(32, 96, 16, 16, 32, 16, l0=2)),
    "columns outside": (
        Matrices(64, 96, 48, bias=True, relu=True),
        Tiling(32, 96, 16, 16, 32, 16, order="yx", l1=2, l0=2, l0c=2, ub=2),
    ),
    "cut reduction": (
        Matrices(64, 96, 48, transposed=True),
        Tiling(32, 48, 32, 32, 16, 32, l1=2, l0=2, l0c=2, ub=2),
    ),
    "ragged": (Matrices(33, 50, 17, relu=True), Tiling(48, 64, 32, 48, 32, 16)),
    "ragged reduction": (
        Matrices(47, 333, 100, bias=True),
        Tiling(32, 336, 64, 16, 64, 32, l1=2),
    ),
    "a row": (Matrices(1, 100, 15, transposed=True), Tiling(16, 112, 16, 16, 112, 16)),
    "an element": (Matrices(1, 1, 1), Tiling(16, 16, 16, 16, 16, 16, l1=2, l0=2)),
    "large blocks": (Matrices(128, 64, 128), Tiling(64, 64, 128, 64, 32, 64, l0=2, l0c=2, ub=2)),
}


def arguments_of(of: Matrices, seed: int) -> tuple[dict[str, NDArray[np.float16]], NDArray]:  # type: ignore[type-arg]
    a, b = whole_numbers(seed, of.M, of.N), whole_numbers(seed + 1, of.N, of.K)
    bias = whole_numbers(seed + 2, of.K, most=9)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    arguments = {"a": pack(a), "b": pack(np.ascontiguousarray(b.T) if of.transposed else b)}
    if of.bias:
        expected = expected + bias
        whole = np.full(padded(of.K), np.nan, np.float16)
        whole[: of.K] = bias
        arguments["bias"] = whole
    if of.relu:
        expected = np.maximum(expected, 0)
    return {**arguments, "c": empty(of.M, of.K)}, expected.astype(np.float16)


def check(of: Matrices, kernel: Kernel, order: int) -> Outcome:
    arguments, expected = arguments_of(of, order)
    outcome = run(kernel, arguments, order)
    np.testing.assert_array_equal(unpack(arguments["c"], (of.M, of.K)), expected)
    return outcome


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CASES)
def test_products_are_exact_in_every_order(name: str) -> None:
    of, tiling = CASES[name]
    kernel = built(matmul(of, tiling, ASCEND_910))
    seeds = range(100, 150) if name in ("two levels", "cut reduction") else range(100, 110)
    for order in (*ORDERS, *seeds):
        check(of, kernel, order)


@pytest.mark.few(8)
@pytest.mark.parametrize("rows", [1, 15, 17, 100])
@pytest.mark.parametrize(("depth", "columns"), [(1, 511), (15, 17), (333, 15), (511, 100)])
def test_extents_that_no_block_divides(rows: int, depth: int, columns: int) -> None:
    of = Matrices(rows, depth, columns, bias=True)
    tiling = Tiling(16, padded(depth), 64, 16, min(padded(depth), 128), 16, l1=2)
    check(of, built(matmul(of, tiling, ASCEND_310), ASCEND_310), 7)


SMALL = Product(64, 48, 80)


def thesis(kind: Kind, of: Matrices, tile: Tile) -> Program:
    """The kernel of the planner's loops: what is loaded next to the cube passes L1 each time."""
    machine = network_machine(ASCEND_910)
    kernel = of.kernel("kernel")
    schedule = Stationary(kind).schedule(kernel, machine, tile)
    lowered = tile_program(kernel, schedule, machine, honours=AscendTarget.honours)
    return cube_kernel(lowered, ASCEND_910, "kernel")


def loads_of(kind: Kind, of: Product, tile: Tile) -> int:
    """The formula; but an operand that is one tile is loaded once, and with whole reductions a tile
    of A stays for all of B's under os, too."""
    loads = of.loads("is" if kind == "os" and tile.n >= of.N else kind, tile)
    if tile.n >= of.N and tile.k >= of.K and kind != "ws":
        loads -= of.N * of.K * (-(-of.M // tile.m) - 1)
    if tile.n >= of.N and tile.m >= of.M and kind == "ws":
        loads -= of.M * of.N * (-(-of.K // tile.k) - 1)
    return loads


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_loads_are_the_formulas(kind: Kind) -> None:
    """Of every tile, to the element, counted in the emitted programs; some of them run."""
    of = Matrices(SMALL.M, SMALL.N, SMALL.K)
    every = list(all_tiles(SMALL, Room(1 << 20, 1 << 20, 1 << 20)))
    allowed = [one for one in every if SMALL.allows(kind, one)]
    assert len(allowed) >= 8
    for number, one in enumerate(allowed):
        program = thesis(kind, of, one)
        moved = {"a": 0, "b": 0, "c": 0}
        for step in trace(program):
            for access in (*step.reads, *step.writes):
                if access.home.startswith("gm "):
                    moved[access.home[3:]] += access.bytes * prod(access.counts)
        assert moved["a"] + moved["b"] == 2 * loads_of(kind, SMALL, one)
        assert moved["c"] == 2 * SMALL.M * SMALL.K
        if number % max(len(allowed) // 6, 1) == 0:
            outcome = check(of, built(program), 3)
            assert outcome.counts["gm_reads"] == moved["a"] + moved["b"]
            assert outcome.counts["gm_writes"] == moved["c"]


LARGE = Matrices(512, 768, 768)


THESIS = (Tiling(256, 128, 256, 256, 128, 256), 2_359_296, 36)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    but_fast(
        [
            THESIS,
            (Tiling(256, 64, 256, 256, 64, 256, l1=2, l0=2), 2_359_296, 72),
            (Tiling(128, 128, 128, 128, 128, 128, l1=2, l0=2), 4_718_592, 144),
            (Tiling(512, 768, 64, 256, 64, 64, l1=2, l0=2, l0c=2, ub=2), 983_040, 288),
        ],
        [THESIS],
    ),
)
def test_the_thesis_product(case: tuple[Tiling, int, int]) -> None:
    tiling, loads, mads = case
    outcome = check(LARGE, built(matmul(LARGE, tiling, ASCEND_910)), 5)
    assert outcome.counts["gm_reads"] == 2 * loads
    assert outcome.counts["mads"] == mads
    assert outcome.counts["cube_cycles"] == 73_728
    best = best_tile("os", Product(512, 768, 768), Room(32_768, 32_768, 65_536))
    assert best == (2_359_296, Tile(256, 128, 256))


def test_the_best_tile_cannot_be_doubled() -> None:
    with pytest.raises(TilewrightError, match="tile-capacity"):
        matmul(LARGE, Tiling(256, 128, 256, 256, 128, 256, l0=2), ASCEND_910)


def test_flags_of_the_thesis_product() -> None:
    """Four hand-overs an iteration next to the cube, four a tile of C, 7 slots free at first."""
    tiling = Tiling(256, 64, 256, 256, 64, 256, l1=2, l0=2, ub=2)
    steps = trace(synchronised(matmul(LARGE, tiling, ASCEND_910)))
    sets = [one for one in steps if isinstance(one.statement, Flag) and one.statement.kind == "set"]
    assert len(sets) == 4 * 72 + 4 * 6 + 7


def test_blocks_further_apart_than_a_gap_holds_are_copied_one_by_one() -> None:
    """Results of 70,000 rows: every byte is stored once, and each field holds its number."""
    product = Matrices(70_000, 16, 32)
    program = matmul(product, Tiling(16, 16, 32, 16, 16, 32), ASCEND_910)
    steps = trace(program)
    check_fields(steps, program.name)
    stores = [access for step in steps for access in step.writes if access.home == "gm c"]
    assert {(access.bytes, access.counts) for access in stores} == {(512, (1,))}
    assert sorted(access.start for access in stores) == list(range(0, 70_000 * 32 * 2, 512))
