"""Tiles of weights that take one slot or two in turn, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case

from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

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
