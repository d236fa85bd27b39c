"""Weights that come while all tiles of those before them are computed, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import few
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case

from tilewright.machine import Machine
from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)

CHANNELS, DEEP = 16, 32
SLOT = 2 * CHANNELS * DEEP * 9
"""Bytes of the weights of 16 channels."""

RATE = 12.0
"""Bytes of weights that come in a cycle where that is slow."""


def convolution(channels: int) -> Case:
    return conv(channels, DEEP, (6, 5))


def schedule(case: Case, slots: int) -> Schedule:
    return cut(case, {"co": CHANNELS, "oh": 2}, ("co", "oh"), weights=slots)


@pytest.mark.parametrize("channels", few([32, 48, 64, 72], 2))
@pytest.mark.parametrize(("slots", "room"), [(2, 2.0), (1, 1.0), (1, 1.25), (1, 1.5), (1, 2.0)])
def test_results_do_not_depend_on_the_room_for_weights(
    channels: int, slots: int, room: float
) -> None:
    """Even and odd numbers of tiles; the last one of 72 channels is short."""
    case = convolution(channels)
    described = SMALL.with_values({"memory.msm.bytes": int(room * SLOT)})
    found, _, _ = run_case(case, schedule(case, slots), described)
    np.testing.assert_array_equal(found, case.expected)


def slow(room: float) -> Machine:
    """Weights take longer to come than a tile to be computed; other transfers take nearly no time,
    as parts of pixels are transfers of their own."""
    quick = {f"move.{move.name}.latency": 2 for move in SMALL.moves}
    return SMALL.with_values(
        {"memory.msm.bytes": int(room * SLOT), "move.mload.bytes_per_cycle": RATE} | quick
    )


def test_room_beside_one_slot_takes_a_part_of_the_next_weights() -> None:
    """Less of the tiles behind the first is waited for; scalar instructions hide some of it."""
    case = convolution(64)
    tried = [run_case(case, schedule(case, 1), slow(room))[1].cycles for room in (1.0, 1.25, 1.5)]
    assert tried[0] > tried[1] > tried[2]


def test_the_next_weights_come_under_all_tiles_of_those_before() -> None:
    """A tile takes less time than their load, a round of three takes more: only the first is
    waited for."""
    case, load = convolution(64), SLOT / RATE
    quick = slow(2).with_values({"move.mload.bytes_per_cycle": 128.0})
    fast, late = (
        run_case(case, schedule(case, 2), described)[1].cycles for described in (quick, slow(2))
    )
    assert fast / (4 * 3) < load < fast / 4
    assert late - fast < 1.5 * load
