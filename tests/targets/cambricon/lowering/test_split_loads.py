"""Weights that come by both DMAs: bit for bit, and in the time of their bytes alone."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.machine import Machine
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine
from tilewright.targets.cambricon.simulate import Result

_, SMALL, _ = map(machine, CONFIGURATIONS)

RATE, LATENCY = 16, 20
"""Bytes a cycle and cycles: main memory is what products wait for."""


def slow(slots: int = 2, tile: int = 8192) -> Machine:
    moves = {f"move.{one.name}.bytes_per_cycle": float(RATE) for one in SMALL.moves}
    moves |= {f"move.{one.name}.latency": LATENCY for one in SMALL.moves}
    sizes = {"memory.dram.bytes_per_cycle": float(RATE), "memory.msm.bytes": slots * tile}
    return SMALL.with_values(moves | sizes)


def is_split(result: Result) -> bool:
    """True if weights come by way of both DMAs, whose sums are outer products."""
    return "OP" in result.counts


@pytest.mark.parametrize(("channels", "deep"), [(32, 512), (64, 512), (80, 480), (32, 128)])
@pytest.mark.parametrize("maps", [(), ("relu",)])
def test_results_are_the_same(channels: int, deep: int, maps: tuple[str, ...]) -> None:
    """Tiles that are shorter at the ends of both dims; one tile of a dim."""
    case = conv(channels, deep, (1, 1), (1, 1), (0, 0, 0, 0), maps)
    tile = {"co": 32, "ci": 128}
    order = tuple(dim for dim, size in (("co", channels), ("ci", deep)) if size > tile[dim])
    found, result, _ = run_case(case, cut(case, tile, order), slow())
    np.testing.assert_array_equal(found, case.expected)
    # Without a second tile of the reduction sums stay apart from results.
    assert is_split(result) == (deep > 128)


def test_several_pixels_and_rows() -> None:
    case = conv(64, 256, (4, 3), (3, 1), (1, 0, 1, 0))
    chosen = cut(case, {"co": 32, "ci": 64}, ("co", "ci"))
    found, result, _ = run_case(case, chosen, slow(tile=2 * 32 * 64 * 3))
    np.testing.assert_array_equal(found, case.expected)
    assert is_split(result)


@pytest.mark.parametrize("at_end", [False, True])
def test_latencies_are_hidden(at_end: bool) -> None:
    """Each of 64 tiles takes the time of its bytes; by one DMA it would take the latency, too.

    The part that comes by way of VSM lies after the buffers or, where these lie at its end, in
    front of them.
    """
    case = conv(128, 2048, (1, 1), (1, 1), (0, 0, 0, 0))
    chosen = cut(case, {"co": 32, "ci": 128}, ("co", "ci"))
    found, result, _ = run_case(case, chosen, slow(), at_end=at_end)
    np.testing.assert_array_equal(found, case.expected)
    tiles = 64
    least = (128 * 2048 + tiles * 128) * 2 / RATE
    assert result.cycles < least + tiles * LATENCY / 2


def test_products_that_take_as_long_are_not_held_up() -> None:
    """Weights come in less time than their products take: nothing is to be gained."""
    case = conv(32, 512, (8, 4), (1, 1), (0, 0, 0, 0))
    described = slow().with_values({"memory.vsm.bytes": 64 << 10})
    found, result, _ = run_case(case, cut(case, {"co": 32, "ci": 128}, ("ci",)), described)
    np.testing.assert_array_equal(found, case.expected)
    assert not is_split(result)
