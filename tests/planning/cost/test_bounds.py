"""Bounds: published figures, and that no schedule goes below them."""

from __future__ import annotations

import pytest
from benchmarks.papers.dlir.bounds import latency_bound

from tests.planning import planning_kernels as kernels
from tests.planning.event_reference import run
from tests.slow import but_fast
from tilewright.planning import Planner
from tilewright.planning.cost.bounds import (
    compulsory_bytes,
    finite_memory_bytes,
    granule_bound,
    main_bandwidth,
    physical_bound,
    primitives_for,
    slow_move,
)
from tilewright.targets.cambricon_x.machine import MACHINE

CONV = MACHINE.primitive("conv")


def test_a_first_layer_is_bound_by_the_granule() -> None:
    first = kernels.conv(3, 64, 224, 3)
    assert physical_bound(first, MACHINE, CONV) == 3 * 64 * 9 * 224 * 224 / 256
    assert granule_bound(first, MACHINE, CONV) == 4 * 9 * 224 * 224


def test_a_fully_connected_layer_is_bound_by_its_weights() -> None:
    layer = kernels.dense(9216, 4096)
    size = 2 * 9216 * 4096 + 4 * 4096 + 2 * 9216 + 2 * 4096
    assert compulsory_bytes(layer) == size
    assert physical_bound(layer, MACHINE, CONV) == size / 128
    assert granule_bound(layer, MACHINE, CONV) == size / 128


def test_strided_convolutions_need_only_the_pixels_that_they_touch() -> None:
    size = compulsory_bytes(kernels.conv(64, 32, 56, 1, 2))
    assert size == 2 * 64 * 28 * 28 + 2 * 64 * 32 + 4 * 32 + 2 * 32 * 28 * 28


def test_finite_memory_by_hand() -> None:
    # 2 M / sqrt(R S) - 2 S elements, R = 9 / 1, S = 48 KB of 2 bytes.
    kernel = kernels.conv(256, 256, 56, 3)
    macs, fast = 256 * 256 * 9 * 56 * 56, 49152 / 2
    expected = (2 * macs / (9 * fast) ** 0.5 - 2 * fast) * 2
    assert finite_memory_bytes(kernel, MACHINE, CONV) == pytest.approx(expected)
    assert finite_memory_bytes(kernels.pool(64, 56, 2, 2), MACHINE, MACHINE.primitive("pool")) == 0


@pytest.mark.slow
def test_a_fully_connected_layer_pays_for_latency() -> None:
    """SB of 32 KB takes the weights in so many transfers, each of which waits 100 cycles."""
    layer = kernels.dense(9216, 4096)
    weights = 2 * 9216 * 4096 + 4 * 4096
    transfers = -(-weights // 32768) + -(-2 * 9216 // 8192)
    busy = (weights + 2 * 9216) / 128 + 100 * transfers
    assert latency_bound(layer, MACHINE, CONV) == pytest.approx(busy)
    many = kernels.variant(MACHINE, in_flight=8)
    assert latency_bound(layer, many, CONV) == granule_bound(layer, many, CONV)
    for in_flight in (1, 4):
        machine = kernels.variant(MACHINE, in_flight=in_flight)
        found = run(layer, Planner(machine).plan(layer).schedule, machine).cycles
        assert found >= latency_bound(layer, machine, CONV) >= granule_bound(layer, machine, CONV)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernels.conv(64, 96, 28, 3), marks=pytest.mark.slow),
        pytest.param(kernels.conv(128, 128, 14, 3), marks=pytest.mark.slow),
        kernels.conv(64, 128, 28, 1),
        kernels.conv(24, 64, 30, 5, 2),
        kernels.dense(512, 512, 64),
        kernels.pool(64, 28, 3, 2),
        kernels.lrn(64, 14),
        kernels.add(32, 20),
    ],
    ids=lambda kernel: kernel.symbol,
)
@pytest.mark.parametrize("bandwidth", but_fast([4.0, 128.0], [128.0]))
def test_no_schedule_goes_below(kernel: kernels.Kernel, bandwidth: float) -> None:
    machine = kernels.variant(MACHINE, bandwidth=bandwidth, in_flight=8)
    primitive = primitives_for(kernel, machine)[0]
    found = Planner(machine).plan(kernel)
    timeline = run(kernel, found.schedule, machine)
    assert timeline.main_bytes >= finite_memory_bytes(kernel, machine, primitive)
    assert timeline.main_bytes >= compulsory_bytes(kernel)
    assert physical_bound(kernel, machine, primitive) <= found.granule_bound <= timeline.cycles
    assert latency_bound(kernel, machine, primitive) <= timeline.cycles
    assert main_bandwidth(machine) == bandwidth


@pytest.mark.parametrize("speed", [1.0, 2.0])
def test_a_slow_move_is_the_bound(speed: float) -> None:
    """Results that leave by few bytes a cycle: the bound is their time, and the move is named."""
    moves = tuple(
        move.model_copy(update={"bytes_per_cycle": speed}) if move.target == "dram" else move
        for move in MACHINE.moves
    )
    machine = MACHINE.model_copy(update={"moves": moves})
    kernel = kernels.conv(16, 32, 28)
    stored = 2 * 32 * 28 * 28 / speed
    primitive = machine.primitive("conv")
    assert physical_bound(kernel, machine, primitive) == stored
    assert granule_bound(kernel, machine, primitive) == stored
    schedule = Planner(machine).plan(kernel).schedule
    assert stored <= run(kernel, schedule, machine).cycles <= 1.25 * stored
    assert slow_move(kernel, machine, primitive) in {m.name for m in moves if m.target == "dram"}
    assert slow_move(kernel, MACHINE, CONV) == ""
