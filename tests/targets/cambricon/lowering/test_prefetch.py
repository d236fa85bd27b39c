"""Loads in prefetch slots: none fills bytes that are still used, none holds up the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.prefetch import (
    FirstLoad,
    Prefetches,
    PrefetchSlot,
    WeightRequest,
)
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.statements import Statement

SIZE = 4096

REGISTERS = tuple(Register(number) for number in range(3))


def slot(*busy: tuple[int, int]) -> PrefetchSlot:
    return PrefetchSlot(Statement(remark="room for a load"), REGISTERS, busy)


def request(size: int, slots: int = 1) -> WeightRequest:
    each = size // slots
    return WeightRequest(FirstLoad(0, each // 2, 0), size, each if slots > 1 else 0)


def test_weights_do_not_meet_those_of_the_kernel_before() -> None:
    prefetches = Prefetches(MACHINE)
    prefetches.passed([(0, 1000)], slot((0, 1000)), 1e4)
    found = prefetches.place(request(512), 4096)
    assert (found.base, found.slot) == (4096 - 512, 0)


def test_no_slot_takes_a_load_into_bytes_that_are_still_used() -> None:
    prefetches = Prefetches(MACHINE)
    prefetches.passed([(0, 3072)], slot((0, 3072)), 1e4)
    assert prefetches.place(request(2048), 4096).slot is None


def test_the_first_tile_goes_to_the_slot_that_is_free() -> None:
    prefetches = Prefetches(MACHINE)
    prefetches.passed([(0, 4096)], slot((0, 2048)), 1e4)
    found = prefetches.place(request(4096, 2), 4096)
    assert (found.base, found.later, found.slot) == (0, True, 0)


def test_a_slot_takes_one_load() -> None:
    prefetches = Prefetches(MACHINE)
    prefetches.passed([], slot(), 1e4)
    found = prefetches.place(request(512), 4096)
    assert found.slot == 0
    prefetches.put(found.slot, FirstLoad(found.base, 256, 0))
    prefetches.passed([(0, 512)], None, 1e4)
    assert prefetches.place(request(512), 4096).slot is None


@pytest.mark.parametrize(("cycles", "number"), [(10.0, None), (1e5, 2)])
def test_a_load_waits_for_no_other(cycles: float, number: int | None) -> None:
    """A second transfer of one engine would hold up the queue."""
    prefetches = Prefetches(MACHINE)
    prefetches.passed([], slot(), cycles)
    prefetches.passed([], None, cycles)
    prefetches.passed([], slot(), 1e5)
    prefetches.put(0, FirstLoad(0, 50_000, 0))
    prefetches.passed([(0, 100_000)], None, 1e5)
    assert prefetches.place(request(2048), 1 << 20).slot == number


def test_a_kernel_that_waits_for_its_own_load_takes_the_next_one() -> None:
    prefetches = Prefetches(MACHINE)
    prefetches.passed([], slot(), 10.0)
    prefetches.put(0, FirstLoad(0, 50_000, 0))
    prefetches.passed([(0, 100_000)], slot((0, 100_000)), 10.0)
    assert prefetches.place(request(2048), 1 << 20).slot == 1


def test_a_long_load_takes_an_early_slot_and_a_short_one_the_last() -> None:
    prefetches = Prefetches(MACHINE)
    for _ in range(3):
        prefetches.passed([], slot(), 1e3)
    assert prefetches.place(request(200), 1 << 20).slot == 2
    assert prefetches.place(request(500_000), 1 << 20).slot == 0


@pytest.mark.parametrize("waits", [False, True])
def test_a_load_beside_the_first_tile_waits_for_its_operands(waits: bool) -> None:
    """Beside them it would take half of the bandwidth."""
    *_, barrier, load = FirstLoad(64, 512, 4096).statements(REGISTERS, waits=waits)
    assert bool(barrier.modifiers.get("barrier")) == waits
    assert (load.mnemonic, load.modifiers) == ("MLOAD", {})


@pytest.mark.parametrize(("order", "waits"), [(("oh",), True), (("co", "oh"), False)])
def test_loads_in_front_of_the_first_tile_wait(order: tuple[str, ...], waits: bool) -> None:
    """Where weights change, the slot lies behind the last ones, while products go on."""
    case = conv(64, 64, (6, 5))
    chosen = cut(case, {"oh": 2} | ({"co": 32} if "co" in order else {}), order)
    _, _, lowering = run_case(case, chosen, MACHINE)
    (taken,) = (one.slot for one in lowering.prefetches._passed)  # pyright: ignore[reportPrivateUsage]
    assert taken is not None
    assert taken.waits == waits


@pytest.mark.parametrize(("tiles", "later"), [(3, True), (4, False)])
def test_the_last_tile_leaves_room_in_one_piece(tiles: int, later: bool) -> None:
    """It lies in the slot at the end; the kernel that follows gets all in front of it."""
    prefetches = Prefetches(MACHINE)
    prefetches.passed([], slot(), 1e4)
    wanted = replace(request(4096, 2), tiles=tiles)
    found = prefetches.place(wanted, 6144)
    assert (found.base, found.later, found.slot) == (2048, later, 0)
    assert wanted.last(found.base, found.later) == (4096, 6144)


def test_room_in_front_is_best() -> None:
    """What takes all of the scratchpad begins there."""
    prefetches = Prefetches(MACHINE)
    prefetches.passed([], slot(), 1e4)
    assert prefetches.place(request(2 * SIZE), 16 * SIZE).base == 14 * SIZE
