"""Tiles computed row by row of the kernel, whose weights come so, too: bit for bit, and in time."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case

from tilewright.machine import Machine
from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.lowering.row_order import RowOrder
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine
from tilewright.targets.cambricon.timer import timer

_, SMALL, _ = map(machine, CONFIGURATIONS)

CHANNELS, DEEP = 32, 96
"""Of a tile's results and of the image; on 16 lanes a row of three positions takes 36 cycles."""

PIXEL = 108
"""Cycles of all three rows."""


def row_bytes(width: int = 3) -> int:
    return 2 * CHANNELS * DEEP * width


def described(rows: float, width: int = 3) -> Machine:
    """Room for so many rows of weights."""
    return SMALL.with_values(
        {"memory.vsm.bytes": 64 << 10, "memory.msm.bytes": int(rows * row_bytes(width))}
    )


def schedule(case: Case, rows: int, columns: int) -> Schedule:
    tile = {"co": CHANNELS, "oh": rows, "ow": columns}
    return cut(case, tile, ("co", "oh", "ow"), weights=1)


def ordered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry if tiles are computed row by row, in however many ways to spend registers."""
    found: list[bool] = []
    order = RowOrder.row_order

    def watched(self: RowOrder, *parts: object) -> None:
        found[:] = [True]
        order(self, *parts)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(RowOrder, "row_order", watched)
    return found


@pytest.mark.parametrize("room", but_fast([4, 4.5, 5, 6], [4]))
@pytest.mark.parametrize("channels", but_fast([64, 96, 160], [96]))
@pytest.mark.parametrize(("rows", "columns"), [(7, 5), (2, 5), (3, 2), (2, 1), (1, 2), (4, 3)])
def test_results_do_not_depend_on_the_tiles(
    rows: int, columns: int, channels: int, room: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles that are short at the edges; even and odd numbers of rounds."""
    used, case = ordered(monkeypatch), conv(channels, DEEP, (7, 5), maps=("relu",))
    found, result, _ = run_case(case, schedule(case, rows, columns), described(room), True)
    np.testing.assert_array_equal(found, case.expected)
    assert used == ([] if (rows, columns) == (7, 5) else [True])
    assert result.counts["MLOAD"] >= 2
    # Each row of weights comes once.
    assert 0 <= result.bytes["mload"] - 3 * channels // CHANNELS * row_bytes() < row_bytes()


@pytest.mark.parametrize(
    ("kernel", "pads"),
    [
        ((3, 3), (0, 0, 0, 0)),
        ((3, 3), (2, 1, 2, 1)),
        ((3, 3), (1, 2, 0, 0)),
        ((2, 3), (1, 1, 0, 1)),
        ((2, 3), (0, 0, 1, 2)),
        ((5, 3), (2, 1, 2, 1)),
        ((5, 1), (3, 0, 1, 0)),
    ],
)
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (3, 5), (1, 4)])
def test_windows_that_are_cut_off(
    rows: int,
    columns: int,
    kernel: tuple[int, int],
    pads: tuple[int, int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of a kernel that meet a part of a tile's pixels, or none."""
    used, case = ordered(monkeypatch), conv(96, DEEP, (7, 6), kernel, pads)
    room = described(kernel[0] + 1, kernel[1])
    found, _, _ = run_case(case, schedule(case, rows, columns), room, True)
    np.testing.assert_array_equal(found, case.expected)
    assert used == [True] * (2 * CHANNELS * DEEP * kernel[1] // 16 // 16 // 2 >= 24)


@pytest.mark.parametrize("strides", [(2, 2), (2, 1), (1, 2), (3, 3)])
@pytest.mark.parametrize(
    "window",
    but_fast(
        [((3, 3), (1, 1, 1, 1)), ((3, 3), (0, 0, 0, 0)), ((5, 3), (2, 1, 1, 0))],
        [((3, 3), (1, 1, 1, 1))],
    ),
)
@pytest.mark.parametrize("tile", but_fast([(2, 3), (1, 2), (3, 1)], [(2, 3)]))
def test_strides_leave_rows_of_the_image_out(
    tile: tuple[int, int],
    window: tuple[tuple[int, int], tuple[int, int, int, int]],
    strides: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of a kernel meet other rows of the image than those beside them."""
    kernel, pads = window
    used, case = ordered(monkeypatch), conv(96, DEEP, (13, 10), kernel, pads, (), strides)
    room = described(kernel[0] + 1, kernel[1])
    found, result, _ = run_case(case, schedule(case, *tile), room, True)
    np.testing.assert_array_equal(found, case.expected)
    assert used == [True]
    every = kernel[0] * 96 // CHANNELS * row_bytes(kernel[1])
    assert 0 <= result.bytes["mload"] - every < row_bytes(kernel[1])


def test_next_weights_are_hardly_waited_for() -> None:
    """Rows take as long to come as a tile to be computed; with one of them beside, three change
    places while the last tile and the first one are at work."""
    case = conv(160, DEEP, (16, 8))
    tiles = schedule(case, 4, 4)
    slow = 8 * PIXEL
    tried: list[float] = []
    for room in (3, 4):
        quick = {"move.mload.bytes_per_cycle": row_bytes() / slow}
        quick |= {f"move.{name}.latency": 4 for name in ("vload", "vstore", "mload")}
        tried.append(run_case(case, tiles, described(room).with_values(quick), True)[1].cycles)
    # All three rows are waited for four times, or less than one.
    assert tried[0] - tried[1] > 4 * 2 * slow


@pytest.mark.parametrize(("columns", "by_rows"), [(8, True), (1, False)])
def test_the_faster_order_is_taken(columns: int, by_rows: bool) -> None:
    """Tiles of a few pixels change rows more often than their weights hide."""
    case = conv(96, DEEP, (16, 8))
    tiles, room = schedule(case, 4 if columns > 1 else 1, columns), described(4)
    rows, plain = (run_case(case, tiles, room, one)[1].cycles for one in (True, False))
    found, result, lowering = run_case(case, tiles, room)
    np.testing.assert_array_equal(found, case.expected)
    assert rows != plain
    assert lowering.by_rows == (rows < plain) == by_rows
    assert result.cycles == min(rows, plain) == timer(room, begun=False)(case.kernel, tiles)
