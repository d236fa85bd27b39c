"""Loads in gaps: none fills bytes that are still used, none holds up the queue."""

from __future__ import annotations

import pytest

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.early import EarlyLoads, FirstLoad, Gap, Need
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.statements import Statement

REGISTERS = tuple(Register(number) for number in range(3))


def gap(*busy: tuple[int, int]) -> Gap:
    return Gap(Statement(remark="room for a load"), REGISTERS, busy)


def need(size: int, slots: int = 1) -> Need:
    return Need(FirstLoad(0, size // slots // 2, 0), size, slots)


def test_weights_lie_behind_those_of_the_kernel_before() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([(0, 1000)], gap((0, 1000)), 1e4)
    place, number = early.place(need(512), 4096)
    assert (place.base, number) == (1024, 0)


def test_no_gap_takes_a_load_into_bytes_that_are_still_used() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([(0, 3072)], gap((0, 3072)), 1e4)
    assert early.place(need(2048), 4096)[1] is None


def test_the_first_tile_goes_to_the_slot_that_is_free() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([(0, 4096)], gap((0, 2048)), 1e4)
    place, number = early.place(need(4096, 2), 4096)
    assert (place.base, place.later, number) == (0, True, 0)


def test_a_gap_takes_one_load() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), 1e4)
    place, number = early.place(need(512), 4096)
    assert number == 0
    early.put(number, need(512).at(place))
    early.passed([(0, 512)], None, 1e4)
    assert early.place(need(512), 4096)[1] is None


@pytest.mark.parametrize(("cycles", "number"), [(10.0, None), (1e5, 2)])
def test_a_load_waits_for_no_other(cycles: float, number: int | None) -> None:
    """A second transfer of one engine would hold up the queue."""
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), cycles)
    early.passed([], None, cycles)
    early.passed([], gap(), 1e5)
    early.put(0, FirstLoad(0, 50_000, 0))
    early.passed([(0, 100_000)], None, 1e5)
    assert early.place(need(2048), 1 << 20)[1] == number


def test_a_kernel_that_waits_for_its_own_load_takes_the_next_one() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), 10.0)
    early.put(0, FirstLoad(0, 50_000, 0))
    early.passed([(0, 100_000)], gap((0, 100_000)), 10.0)
    assert early.place(need(2048), 1 << 20)[1] == 1


def test_a_long_load_takes_an_early_gap_and_a_short_one_the_last() -> None:
    early = EarlyLoads(MACHINE)
    for _ in range(3):
        early.passed([], gap(), 1e3)
    assert early.place(need(200), 1 << 20)[1] == 2
    assert early.place(need(500_000), 1 << 20)[1] == 0
