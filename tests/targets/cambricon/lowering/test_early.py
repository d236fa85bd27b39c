"""Loads in gaps: none fills bytes that are still used, none holds up the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.early import (
    LEAST,
    EarlyLoads,
    FirstLoad,
    Gap,
    Need,
    Place,
)
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.statements import Statement

REGISTERS = tuple(Register(number) for number in range(3))


def gap(*busy: tuple[int, int]) -> Gap:
    return Gap(Statement(remark="room for a load"), REGISTERS, busy)


def need(size: int, slots: int = 1) -> Need:
    return Need(FirstLoad(0, size // slots // 2, 0), size, slots, apart=size // slots)


def test_weights_do_not_meet_those_of_the_kernel_before() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([(0, 1000)], gap((0, 1000)), 1e4)
    found = early.settle(need(512), 4096)
    assert (found.place.base, found.gap) == (4096 - 512, 0)


def test_no_gap_takes_a_load_into_bytes_that_are_still_used() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([(0, 3072)], gap((0, 3072)), 1e4)
    assert early.settle(need(2048), 4096).gap is None


def test_the_first_tile_goes_to_the_slot_that_is_free() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([(0, 4096)], gap((0, 2048)), 1e4)
    found = early.settle(need(4096, 2), 4096)
    assert (found.place, found.gap) == (Place(0, True), 0)


@pytest.mark.parametrize("busy", [(0, 6 * LEAST), (2 * LEAST, 8 * LEAST)])
def test_a_gap_takes_the_part_that_is_free(busy: tuple[int, int]) -> None:
    """The kernel loads the rest; both together fill the place, from where the weights lie."""
    early = EarlyLoads(MACHINE)
    early.passed([busy], gap(busy), 1e4)
    wanted = need(8 * LEAST)
    found = early.settle(wanted, 8 * LEAST)
    assert found.gap == 0
    assert found.early is not None
    assert found.rest is not None
    whole = wanted.at(found.place)
    parts = sorted((found.early, found.rest), key=lambda one: one.chip)
    assert found.early.elements == LEAST
    assert not (busy[0] < found.early.filled[1] and found.early.filled[0] < busy[1])
    assert parts[0].chip == whole.chip
    assert parts[0].filled[1] == parts[1].chip
    assert parts[1].filled[1] == whole.filled[1]
    assert [one.main - whole.main for one in parts] == [0, 2 * parts[0].elements]


def test_a_few_bytes_are_not_worth_a_transfer() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([(0, 6 * LEAST + 128)], gap((0, 6 * LEAST + 128)), 1e4)
    found = early.settle(need(8 * LEAST), 8 * LEAST)
    assert (found.early, found.gap, found.rest) == (None, None, None)


def test_a_gap_takes_one_load() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), 1e4)
    found = early.settle(need(512), 4096)
    assert found.gap == 0
    early.put(found.gap, need(512).at(found.place))
    early.passed([(0, 512)], None, 1e4)
    assert early.settle(need(512), 4096).gap is None


@pytest.mark.parametrize(("cycles", "number"), [(10.0, None), (1e5, 2)])
def test_a_load_waits_for_no_other(cycles: float, number: int | None) -> None:
    """A second transfer of one engine would hold up the queue."""
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), cycles)
    early.passed([], None, cycles)
    early.passed([], gap(), 1e5)
    early.put(0, FirstLoad(0, 50_000, 0))
    early.passed([(0, 100_000)], None, 1e5)
    assert early.settle(need(2048), 1 << 20).gap == number


def test_a_kernel_that_waits_for_its_own_load_takes_the_next_one() -> None:
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), 10.0)
    early.put(0, FirstLoad(0, 50_000, 0))
    early.passed([(0, 100_000)], gap((0, 100_000)), 10.0)
    assert early.settle(need(2048), 1 << 20).gap == 1


def test_a_long_load_takes_an_early_gap_and_a_short_one_the_last() -> None:
    early = EarlyLoads(MACHINE)
    for _ in range(3):
        early.passed([], gap(), 1e3)
    assert early.settle(need(200), 1 << 20).gap == 2
    assert early.settle(need(500_000), 1 << 20).gap == 0


@pytest.mark.parametrize("waits", [False, True])
def test_a_load_beside_the_first_tile_waits_for_its_operands(waits: bool) -> None:
    """Beside them it would take half of the bandwidth."""
    *_, barrier, load = FirstLoad(64, 512, 4096).statements(REGISTERS, waits=waits)
    assert bool(barrier.modifiers.get("barrier")) == waits
    assert (load.mnemonic, load.modifiers) == ("MLOAD", {})


@pytest.mark.parametrize(("order", "waits"), [(("oh",), True), (("co", "oh"), False)])
def test_loads_in_front_of_the_first_tile_wait(order: tuple[str, ...], waits: bool) -> None:
    """Where weights change, the gap lies behind the last ones, while products go on."""
    case = conv(64, 64, (6, 5))
    chosen = cut(case, {"oh": 2} | ({"co": 32} if "co" in order else {}), order)
    _, _, lowering = run_case(case, chosen, MACHINE)
    (taken,) = (one.gap for one in lowering.early._passed)  # pyright: ignore[reportPrivateUsage]
    assert taken is not None
    assert taken.waits == waits


@pytest.mark.parametrize(("tiles", "later"), [(3, True), (4, False)])
def test_the_last_tile_leaves_room_in_one_piece(tiles: int, later: bool) -> None:
    """It lies in the slot at the end; the kernel that follows gets all in front of it."""
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), 1e4)
    wanted = replace(need(4096, 2), tiles=tiles)
    found = early.settle(wanted, 6144)
    assert (found.place, found.gap) == (Place(2048, later), 0)
    assert wanted.last(found.place) == (4096, 6144)


def test_room_in_front_is_best() -> None:
    """What takes all of the scratchpad begins there, and most of it may come early."""
    early = EarlyLoads(MACHINE)
    early.passed([], gap(), 1e4)
    place = early.settle(need(2 * LEAST), 16 * LEAST).place
    assert place.base == 14 * LEAST
    early.passed([(14 * LEAST, 16 * LEAST)], gap((14 * LEAST, 16 * LEAST)), 1e4)
    found = early.settle(need(16 * LEAST), 16 * LEAST)
    assert found.early is not None
    assert (found.early.chip, found.early.elements) == (0, 7 * LEAST)
