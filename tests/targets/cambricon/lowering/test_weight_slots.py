"""Tiles of weights that take one slot or two in turn, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case

from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import BANDWIDTH, CONFIGURATIONS, LATENCY, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)

CHANNELS, DEEP = 16, 32
SLOT = 2 * CHANNELS * DEEP * 9
"""Bytes of the weights of 16 channels."""


def convolution(channels: int) -> Case:
    return conv(channels, DEEP, (6, 5))


def schedule(case: Case, slots: int) -> Schedule:
    return cut(case, {"co": CHANNELS, "oh": 2}, ("co", "oh"), weights=slots)


@pytest.mark.few(8)
@pytest.mark.parametrize("channels", [32, 48, 64, 72])
@pytest.mark.parametrize(("slots", "room"), [(2, 2.0), (1, 1.0), (1, 1.5), (1, 2.0)])
def test_results_do_not_depend_on_the_room_for_weights(
    channels: int, slots: int, room: float
) -> None:
    """Even and odd numbers of tiles; the last one of 72 channels is short."""
    case = convolution(channels)
    described = SMALL.with_values({"memory.msm.bytes": int(room * SLOT)})
    found, _, _ = run_case(case, schedule(case, slots), described)
    np.testing.assert_array_equal(found, case.expected)


def test_the_next_weights_leave_main_memory_to_an_image_of_one_slot() -> None:
    """Products wait for the image, whose tiles take as long as if nothing else were loaded: a
    seventh less than beside the weights."""
    rows, tile, width = 16, 4, 14
    case = conv(2 * DEEP, 2 * DEEP, (rows, width))
    whole = {**case.kernel.anchor.extents, "oh": tile}
    levels = (
        Level("vsm", tuple(whole.items()), ("oh",)),
        Level("msm", tuple({**whole, "co": DEEP}.items()), ("co",)),
    )
    slots = {one.name: 1 + (one.role == "weight") for one in case.kernel.operands}
    described = SMALL.with_values({"memory.msm.bytes": 1 << 20, "memory.vsm.bytes": 1 << 15})
    chosen = Schedule("conv", levels, tuple(slots.items()))
    found, result, _ = run_case(case, chosen, described)
    np.testing.assert_array_equal(found, case.expected)
    # Of the image, and of the results; tiles have a row more at one end, or at both.
    moved = 2 * 2 * DEEP * width * (2 * rows + 2 * (rows // tile - 1))
    transfers = 2 * rows // tile + 1
    alone = transfers * LATENCY + moved / BANDWIDTH
    # Words of the program come with the transfers.
    assert result.busy["vector_dma"] < 1.1 * alone
