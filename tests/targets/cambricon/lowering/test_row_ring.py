"""Images whose rows come one by one, into the places of those that are done with: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import few
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case

from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.lowering.row_ring import RowRing
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

_, SMALL, _ = map(machine, CONFIGURATIONS)

ROOMY = SMALL.with_values({"memory.vsm.bytes": 64 << 10, "memory.msm.bytes": 256 << 10})

CHANNELS, DEEP = 64, 96


def single(case: Case, tile: dict[str, int], order: tuple[str, ...]) -> Schedule:
    """A schedule whose image has one slot."""
    chosen = cut(case, tile, order)
    image = case.kernel.anchor.inputs[0].name
    slots = tuple((name, 1 if name == image else n) for name, n in chosen.buffers)
    return type(chosen)(chosen.primitive, chosen.levels, slots)


def rolled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry if rows come one by one."""
    found: list[bool] = []
    reset = RowRing.reset

    def watched(self: RowRing) -> None:
        found[:] = [True]
        reset(self)

    monkeypatch.setattr(RowRing, "reset", watched)
    return found


SHAPES = [
    # Image, kernel, padding, stride.
    ((9, 5), (3, 3), (1, 1, 1, 1), (1, 1)),
    ((9, 5), (3, 3), (0, 0, 0, 0), (1, 1)),
    ((8, 6), (3, 3), (2, 1, 0, 1), (1, 1)),
    ((14, 7), (3, 3), (1, 1, 1, 1), (2, 2)),
    ((13, 6), (3, 2), (0, 0, 1, 1), (2, 1)),
    ((9, 4), (2, 3), (1, 1, 0, 1), (1, 1)),
    ((15, 5), (5, 3), (2, 1, 2, 1), (2, 1)),
    ((19, 4), (3, 3), (1, 1, 1, 1), (3, 1)),
]


@pytest.mark.parametrize("rows", few([1, 2, 3], 2))
@pytest.mark.parametrize("order", [("oh",), ("oh", "co")], ids=">".join)
@pytest.mark.parametrize(("size", "kernel", "pads", "strides"), SHAPES)
def test_each_row_comes_once(
    size: tuple[int, int],
    kernel: tuple[int, int],
    pads: tuple[int, int, int, int],
    strides: tuple[int, int],
    order: tuple[str, ...],
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Strides, padding, tiles that are short at the end, and several tiles of channels."""
    used = rolled(monkeypatch)
    case = conv(CHANNELS, DEEP, size, kernel, pads, ("relu",), strides)
    tile = {"oh": rows} | ({"co": 32} if "co" in order else {})
    found, result, _ = run_case(case, single(case, tile, order), ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    assert used == [True]
    image = 2 * DEEP * size[0] * size[1]
    rest = 4 * CHANNELS * (-(-case.expected.shape[2] // rows) if "co" in order else 1)
    assert result.bytes["vload"] <= image + rest + 4096


def test_loads_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside loads of whole tiles, which come when the one before is done."""
    case = conv(CHANNELS, DEEP, (12, 6))
    chosen = single(case, {"oh": 2}, ("oh",))
    found, result, _ = run_case(case, chosen, ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    monkeypatch.setattr(
        "tilewright.targets.cambricon.lowering.kernel.KernelLowering.roll",
        lambda self, operand, rows: False,
    )
    found, whole, _ = run_case(case, chosen, ROOMY)
    np.testing.assert_array_equal(found, case.expected)
    assert result.cycles + 5 * 100 < whole.cycles
