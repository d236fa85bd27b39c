"""Results of a reduction in several tiles that leave in two parts: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.lowering import stepping
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)

ROOMY = SMALL.with_values({"memory.vsm.bytes": 64 << 10, "memory.msm.bytes": 256 << 10})

CHANNELS, DEEP = 128, 192
"""Of results, and of a tile's image: on 16 lanes a pixel takes 96 cycles."""


def single(schedule: Schedule, name: str) -> Schedule:
    """The results have one slot."""
    slots = tuple((one, 1 if one == name else n) for one, n in schedule.buffers)
    primitive = "rows_conv" if "kh" in schedule.levels[0].order else "conv"
    return Schedule(primitive, schedule.levels, slots)


@pytest.mark.parametrize("tiles", [2, 3])
@pytest.mark.parametrize(("pixels", "columns"), [(32, 8), (27, 9), (29, 10), (21, 11)])
def test_each_part_leaves_once(
    pixels: int, columns: int, tiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last tile of pixels is as long as others, or shorter."""
    case = conv(CHANNELS, DEEP, (tiles, pixels), (tiles, 1), (0, 0, 0, 0), ("relu",))
    chosen = single(cut(case, {"ow": columns, "kh": 1}, ("ow", "kh")), case.kernel.output.name)
    found, result, _ = run_case(case, chosen, ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    monkeypatch.setattr(stepping, "part_store_of", lambda *_: None)
    found, whole, _ = run_case(case, chosen, ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    assert result.bytes["vstore"] - whole.bytes["vstore"] < 256
    assert result.counts["VSTORE"] == whole.counts["VSTORE"] + -(-pixels // columns)
    # Most of a latency for each tile but the last one.
    assert result.cycles + 50 * (-(-pixels // columns) - 1) < whole.cycles


@pytest.mark.parametrize(
    ("deep", "size", "tile"),
    [
        (DEEP, (2, 8), {"ow": 7, "kh": 1}),
        (2 * DEEP, (1, 32), {"ow": 8, "ci": DEEP}),
    ],
    ids=["fewer pixels than the first part", "a transfer for each pixel"],
)
def test_results_leave_whole_where_transfers_have_no_time(
    deep: int, size: tuple[int, int], tile: dict[str, int]
) -> None:
    case = conv(CHANNELS, deep, size, (size[0], 1), (0, 0, 0, 0), ("relu",))
    chosen = single(cut(case, tile, tuple(tile)), case.kernel.output.name)
    found, result, _ = run_case(case, chosen, ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    assert result.counts["VSTORE"] == -(-size[1] // tile["ow"])
