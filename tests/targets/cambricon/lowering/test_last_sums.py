"""The last sums of a tile, finished behind the step to the next one: bit for bit, and sooner."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.targets.cambricon.lowering.stepping import Stepping
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)

ROOMY = SMALL.with_values({"memory.vsm.bytes": 64 << 10, "memory.msm.bytes": 256 << 10})


def later(monkeypatch: pytest.MonkeyPatch, *, never: bool = False) -> list[bool]:
    """Whether each tile's code leaves its last sums until then."""
    found: list[bool] = []
    allow = Stepping.later

    def watched(self: Stepping, *block: object) -> bool:
        made = not never and allow(self, *block)  # pyright: ignore[reportArgumentType]
        found.append(made)
        return made

    monkeypatch.setattr(Stepping, "later", watched)
    return found


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
