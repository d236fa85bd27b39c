"""Results that are stored pixel by pixel, while their own tile is computed: bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.machine import Machine
from tilewright.targets.cambricon.lowering.stepping import Stepping
from tilewright.targets.cambricon.machine import CONFIGURATIONS, LATENCY, machine
from tilewright.targets.cambricon.simulate import Result

_, SMALL, _ = map(machine, CONFIGURATIONS)

CHANNELS, DEEP, SIZE = 32, 96, (7, 5)
"""Of a tile's results and of the image; on 16 lanes a pixel of 3 x 3 takes 108 cycles."""


def roomy(latency: int = LATENCY) -> Machine:
    return SMALL.with_values(
        {
            "memory.vsm.bytes": 64 << 10,
            "memory.msm.bytes": 256 << 10,
            "move.vstore.latency": latency,
        }
    )


def pixels_stored(result: Result) -> int:
    """Stores of the words: one a pixel and tile of channels where results leave by the pixel."""
    return result.counts["VSTORE"]


@pytest.mark.parametrize("latency", but_fast([2, LATENCY, 5 * LATENCY], [5 * LATENCY]))
@pytest.mark.parametrize("channels", but_fast([64, 80], [80]))
@pytest.mark.parametrize("order", [("co", "oh", "ow"), ("oh", "ow", "co")], ids=">".join)
@pytest.mark.parametrize(("rows", "columns"), [(7, 5), (2, 5), (3, 2), (2, 1), (1, 2)])
def test_each_pixel_leaves_once(
    rows: int,
    columns: int,
    order: tuple[str, ...],
    channels: int,
    latency: int,
) -> None:
    """Tiles that are short at the edges, and stores that products outrun."""
    case = conv(channels, DEEP, SIZE)
    tile = {"co": CHANNELS, "oh": rows, "ow": columns}
    order = tuple(dim for dim in order if tile[dim] < case.kernel.anchor.extents[dim])
    found, result, _ = run_case(case, cut(case, tile, order), roomy(latency))
    np.testing.assert_array_equal(found, case.expected)
    assert pixels_stored(result) == math.prod(SIZE) * -(-channels // CHANNELS)


def test_the_last_results_do_not_wait_for_all_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the last tile's leave before: a pixel takes longer than its store."""
    case = conv(64, 192, SIZE)  # 216 cycles
    described = roomy().with_values({"memory.msm.bytes": 512 << 10})
    chosen = cut(case, {"co": CHANNELS}, ("co",))
    early = run_case(case, chosen, described)[1].cycles

    def none(self: Stepping) -> None:
        return None

    monkeypatch.setattr(Stepping, "choose_pixel_store", none)
    late = run_case(case, chosen, described)[1].cycles
    assert late - early > math.prod(SIZE) * LATENCY / 2


def test_stores_keep_up_with_rows_that_are_cut_off() -> None:
    """A pixel within the image takes longer than its store, one of a row at its edge does not.

    What is left must be gone before the next such row: issue slots in windows that are cut off and
    the time that their products take count.
    """
    case = conv(128, 256, (13, 13))
    chosen = cut(case, {"co": 64, "oh": 1}, ("co", "oh"))
    described = machine(CONFIGURATIONS[0])
    found, result, _ = run_case(case, chosen, described)
    np.testing.assert_array_equal(found, case.expected)
    pixels = 13 * 3 - 2  # along each axis, positions of the kernel that meet the image
    products = 2 * pixels**2 * (64 // 32) * (256 // 32)
    weights = LATENCY + 64 * 256 * 9 * 2 / 128
    # The step to each of 26 tiles, and the last sums of each, stand beside no products.
    assert result.cycles < weights + products + 12 * LATENCY + 26 * 40


def test_pixels_whose_channels_are_whole_leave_by_the_tile() -> None:
    """They are no transfers of their own: a store for each tile of two rows."""
    case = conv(CHANNELS, DEEP, SIZE)
    found, result, _ = run_case(case, cut(case, {"oh": 2}, ("oh",)), roomy())
    np.testing.assert_array_equal(found, case.expected)
    assert pixels_stored(result) == 4
