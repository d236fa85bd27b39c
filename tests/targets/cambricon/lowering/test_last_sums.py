"""The last sums of a tile, finished behind the step to the next one, or by the next one's first
products: bit for bit, and sooner."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.targets.cambricon.lowering.stepping import Stepping
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)

ROOMY = SMALL.with_values({"memory.vsm.bytes": 64 << 10, "memory.msm.bytes": 256 << 10})


def asked(monkeypatch: pytest.MonkeyPatch, name: str, *, never: bool = False) -> list[bool]:
    """Whether each tile's code leaves its last sums until then."""
    found: list[bool] = []
    allow = getattr(Stepping, name)

    def watched(self: Stepping, *block: object) -> bool:
        made = not never and allow(self, *block)
        found.append(made)
        return made

    monkeypatch.setattr(Stepping, name, watched)
    return found


def later(monkeypatch: pytest.MonkeyPatch, *, never: bool = False) -> list[bool]:
    """The same behind the step to the next tile: none leaves them to its products."""
    asked(monkeypatch, "carry", never=True)
    return asked(monkeypatch, "later", never=never)


@pytest.mark.parametrize("order", [("oh", "ow"), ("co", "oh", "ow"), ("oh", "ow", "co")], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (1, 4), (3, 1)])
def test_results_are_the_same(
    rows: int, columns: int, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Biases that stay, and others with each tile; tiles that are short at the edges."""
    used, case = later(monkeypatch), conv(64, 64, (7, 5), maps=("relu",))
    tile = {"oh": rows, "ow": columns} | ({"co": 32} if "co" in order else {})
    found, _, _ = run_case(case, cut(case, tile, order), ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    # Where pixels leave one by one, the last one of a tile may leave at once.
    assert used[-1] == ("co" not in order and columns > 1)


def test_biases_of_one_slot_are_not_replaced_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are filled again behind each tile: its last sums do not wait that long."""
    used, case = later(monkeypatch), conv(64, 64, (4, 3), maps=("relu",))
    chosen = cut(case, {"co": 32, "oh": 2}, ("oh", "co"))
    single = tuple((name, 1 if name == "in2" else slots) for name, slots in chosen.buffers)
    found, _, _ = run_case(case, type(chosen)(chosen.primitive, chosen.levels, single), ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    assert used == [False]


def test_the_step_to_the_next_tile_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the three products in front of it, not the last one alone: some cycles of each tile."""
    case, used = conv(128, 64, (32, 14), maps=("relu",)), later(monkeypatch)  # products of 24
    chosen, described = cut(case, {"oh": 2}, ("oh",)), machine(CONFIGURATIONS[0])
    behind = run_case(case, chosen, described)[1].cycles
    monkeypatch.undo()
    later(monkeypatch, never=True)
    before = run_case(case, chosen, described)[1].cycles
    assert used == [True]
    assert before - behind > 16 * 4


@pytest.mark.parametrize("maps", [("relu",), ()], ids=str)
@pytest.mark.parametrize("deep", [16, 32, 64, 96])  # on 16 lanes: a pixel has 36 to 216 cycles
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (1, 4), (3, 1), (7, 2), (1, 1)])
def test_the_next_tile_finishes_them(
    rows: int,
    columns: int,
    deep: int,
    maps: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tiles that are short at the edges, or of one pixel, which is cut off in some."""
    used, case = asked(monkeypatch, "carry"), conv(64, deep, (7, 5), maps=maps)
    tile = {"oh": rows, "ow": columns}
    order = tuple(dim for dim in ("oh", "ow") if tile[dim] < case.kernel.anchor.extents[dim])
    found, _, _ = run_case(case, cut(case, tile, order), ROOMY, row_order=False)
    np.testing.assert_array_equal(found, case.expected)
    # Where pixels leave one by one, the last one of a tile may leave at once.
    assert used == [columns > 1 or rows == 1]


@pytest.mark.parametrize("size", [5, 30])
def test_batches_of_pixels_leave_them_to_the_next_tile(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose first batch is another number of pixels where a row ends."""
    used, case = asked(monkeypatch, "carry"), conv(32, 16, (9, 17), (1, 1), (0, 0, 0, 0), ("relu",))
    found, _, _ = run_case(case, cut(case, {"oh": 2, "ow": size % 17}, ("oh", "ow")), ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    assert used == [True]


@pytest.mark.parametrize("order", [("co", "oh"), ("oh", "co")], ids=">".join)
def test_other_biases_are_not_taken_for_them(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the next tile has other channels, a tile finishes its own sums."""
    used, case = asked(monkeypatch, "carry"), conv(64, 16, (6, 5), maps=("relu",))
    found, _, _ = run_case(case, cut(case, {"co": 32, "oh": 2}, order), ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    assert used == []


def test_they_do_not_stand_before_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short products hide more of the step to the next tile where nothing waits for the last."""
    case, used = conv(64, 64, (32, 14), maps=("relu",)), asked(monkeypatch, "carry")
    chosen, described = cut(case, {"oh": 2}, ("oh",)), machine(CONFIGURATIONS[0])
    ahead = run_case(case, chosen, described)[1].cycles
    monkeypatch.undo()
    later(monkeypatch)
    behind = run_case(case, chosen, described)[1].cycles
    assert used == [True]
    assert behind - ahead > 16 * 3
