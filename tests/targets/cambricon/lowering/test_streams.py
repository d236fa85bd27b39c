"""Transfers that wait for issue slots: early where these are scarce, late where they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.targets.cambricon.lowering.streams import EARLY
from tilewright.targets.cambricon.lowering.transfers import Transfers
from tilewright.targets.cambricon.machine import MACHINE


def chosen(monkeypatch: pytest.MonkeyPatch, value: float | None = None) -> list[float]:
    """How early transfers are in each kernel that is lowered, or are to be."""
    found: list[float] = []
    own = Transfers.earliness

    def watched(self: Transfers) -> float:
        found.append(own(self) if value is None else value)
        return found[-1]

    monkeypatch.setattr(Transfers, "earliness", watched)
    return found


def test_products_do_not_wait_for_transfers_where_issue_slots_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two transfers of a tile of 42 pixels of 16 cycles take two thirds of its time."""
    case, used = conv(64, 256, (1, 420), (1, 1), (0, 0, 0, 0), ("relu",)), chosen(monkeypatch)
    schedule = cut(case, {"ow": 42}, ("ow",))
    found, result, _ = run_case(case, schedule, MACHINE)
    np.testing.assert_array_equal(found, case.expected)
    assert set(used) == {0.0}
    monkeypatch.undo()
    chosen(monkeypatch, EARLY)
    assert run_case(case, schedule, MACHINE)[1].cycles - result.cycles > 10 * 8


def test_transfers_do_not_wait_for_issue_slots_where_those_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pixels leave one by one, and each store is a little longer than a product."""
    case, used = conv(256, 256, (7, 28)), chosen(monkeypatch)
    schedule = cut(case, {"co": 128, "oh": 1, "ow": 7}, ("co", "oh", "ow"), weights=1)
    found, result, _ = run_case(case, schedule, MACHINE)
    np.testing.assert_array_equal(found, case.expected)
    assert set(used) == {EARLY}
    monkeypatch.undo()
    chosen(monkeypatch, 0.0)
    assert run_case(case, schedule, MACHINE)[1].cycles > result.cycles


def test_transfers_do_not_wait_where_nobody_knows_how_many_issue_slots_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gradients of maxima, a tile of which takes about as long as its transfers."""
    build, used = KernelBuilder(1), chosen(monkeypatch)
    case = build.finish(build.op("maximum_gradient", build.operand((30, 6, 480), 8)))
    schedule = replace(cut(case, {"n": 3}, ("n",)), primitive="maximum_gradient")
    found, result, _ = run_case(case, schedule, MACHINE)
    np.testing.assert_array_equal(found, case.expected)
    assert set(used) == {EARLY}
    monkeypatch.undo()
    chosen(monkeypatch, 0.0)
    assert run_case(case, schedule, MACHINE)[1].cycles > 1.05 * result.cycles
