"""The thesis' figures for (M, N, K) = (512, 768, 768), enumerated; and its plans run."""

import numpy as np
import pytest

from tests.targets.generic.kernel_cases import lower_case
from tests.targets.generic.test_deep_machine import INSTRUCTIONS, MACHINE, product
from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.planning.planners.registry import planner_of
from tilewright.planning.planners.stationary import (
    KINDS,
    Kind,
    Product,
    Room,
    Stationary,
    Tile,
    best_tile,
    tiles,
)

OF = Product(512, 768, 768)
SINGLE = Room(32_768, 32_768, 65_536)
"""64 KB of 2-byte elements each, 256 KB of 4-byte sums."""
OPERANDS_DOUBLE = Room(16_384, 16_384, 65_536)
ALL_DOUBLE = Room(16_384, 16_384, 32_768)
SMALL_SUMS = Room(32_768, 32_768, 32_768)
SMALL_SUMS_DOUBLE = Room(16_384, 16_384, 16_384)


@pytest.mark.parametrize(
    ("room", "counts"),
    [
        (SINGLE, {"os": 2_359_296, "is": 5_111_808, "ws": 2_949_120}),
        (OPERANDS_DOUBLE, {"os": 2_359_296, "is": 5_111_808, "ws": 2_949_120}),
        (ALL_DOUBLE, {"os": 3_538_944, "is": 9_830_400, "ws": 5_308_416}),
        (SMALL_SUMS, {"os": 3_538_944, "is": 9_830_400, "ws": 5_308_416}),
        (SMALL_SUMS_DOUBLE, {"os": 4_718_592, "is": 19_267_584, "ws": 10_027_008}),
    ],
)
def test_fewest_loads(room: Room, counts: dict[Kind, int]) -> None:
    for kind, loads in counts.items():
        found = best_tile(kind, OF, room)
        assert found is not None
        assert found[0] == loads


def test_the_tiles_that_reach_it() -> None:
    def reaching(kind: Kind, room: Room, loads: int) -> set[tuple[int, int, int]]:
        return {
            (tile.m, tile.n, tile.k)
            for tile in tiles(OF, room)
            if OF.allows(kind, tile) and OF.loads(kind, tile) == loads
        }

    assert reaching("os", SINGLE, 2_359_296) == {(256, n, 256) for n in (16, 32, 48, 64, 96, 128)}
    assert (256, 128, 256) not in reaching("os", OPERANDS_DOUBLE, 2_359_296)
    assert (256, 64, 256) in reaching("os", OPERANDS_DOUBLE, 2_359_296)
    assert (64, 32, 768) in reaching("is", SINGLE, 5_111_808)
    assert (512, 64, 128) in reaching("ws", SINGLE, 2_949_120)
    assert {(128, 64, 256), (256, 64, 128)} <= reaching("os", ALL_DOUBLE, 3_538_944)
    assert (128, 128, 128) in reaching("os", SMALL_SUMS_DOUBLE, 4_718_592)


def test_all_tiles() -> None:
    everything = Room(1 << 40, 1 << 40, 1 << 40)
    assert sum(1 for _ in tiles(OF, everything)) == 600
    assert sum(1 for _ in tiles(OF, SINGLE)) == 350


def test_the_thesis_compares_tiles_of_whole_reductions() -> None:
    """There os < is < ws; of all tiles ws needs less than is."""
    tile = Tile(32, 768, 32)
    counts: dict[Kind, int] = {"is": 9_830_400, "ws": 10_027_008}
    for kind, loads in counts.items():
        assert best_tile(kind, OF, SINGLE, family="whole reduction") == (loads, tile)
    assert OF.loads("os", Tile(256, 128, 256)) == 2_359_296
    assert OF.loads("os", Tile(128, 256, 128)) == 4_718_592


def test_loads_as_the_loops_say() -> None:
    """The formulas against the loops, counted."""
    of = Product(48, 64, 80)
    for tile in tiles(of, Room(1024, 1024, 4096)):
        rounds = {"x": of.M // tile.m, "s": of.N // tile.n, "y": of.K // tile.k}
        a, b = tile.m * tile.n, tile.n * tile.k
        counts = {"is": 0, "ws": 0, "os": 0}
        for _ in range(rounds["x"]):
            for _ in range(rounds["s"]):
                counts["is"] += a + rounds["y"] * b
        for _ in range(rounds["y"]):
            for _ in range(rounds["s"]):
                counts["ws"] += b + rounds["x"] * a
        for _ in range(rounds["x"] * rounds["y"] * rounds["s"]):
            counts["os"] += a + b
        for kind in KINDS:
            assert of.loads(kind, tile) == counts[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("sizes", [(64, 96, 48), (70, 300, 130)])
def test_plans_run(kind: Kind, buffers: int, sizes: tuple[int, int, int]) -> None:
    case = product(3, *sizes)
    found = Planner(MACHINE, search=Stationary(kind, buffers)).plan(case.kernel)
    lowered = lower_case(case, found.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)


def test_the_planner_by_name() -> None:
    kernel = product(3, 64, 96, 48).kernel
    with planner_of("stationary{kind=ws buffers=2}", MACHINE) as chosen:
        assert chosen is not None
        found = chosen(kernel)
    assert found is not None
    assert found.planner == "stationary"
    assert found.schedule == Planner(MACHINE, search=Stationary("ws", 2)).plan(kernel).schedule
    with (
        pytest.raises(TilewrightError, match="takes no kind=xs"),
        planner_of("stationary{kind=xs}", MACHINE),
    ):
        pass
