"""Whole networks on dense ACC-X: what the plans reach, simulated, against the granule bound."""

from __future__ import annotations

import pytest

from tests.planning import planning_kernels as kernels
from tests.planning.event_reference import run
from tilewright.planning import Plan, PlanCache, Planner
from tilewright.targets.base import find_target
from tilewright.targets.cambricon_x.machine import MACHINE

NETWORKS = {
    "lenet": kernels.lenet,
    "alexnet": kernels.alexnet,
    "vgg16": kernels.vgg16,
    "resnet50": kernels.resnet50,
}


def plans_of(network: str, in_flight: int) -> list[tuple[kernels.Kernel, Plan, float]]:
    """Kernels, plans and simulated cycles; planned without a timer, so the cost model decides."""
    machine = kernels.variant(MACHINE, in_flight=in_flight)
    clock = find_target("cambricon-x").timer(machine)
    assert clock is not None
    cache, times = {}, dict[str, float]()
    found: list[tuple[kernels.Kernel, Plan, float]] = []
    for kernel in NETWORKS[network]():
        result = Planner(machine, cache=cache).plan(kernel)
        key = f"{kernel.stages}"
        if key not in times:
            times[key] = clock(kernel, result.schedule)
        found.append((kernel, result, times[key]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "in_flight", "whole", "convolutions"),
    [
        ("alexnet", 1, 0.88, 0.97),
        ("vgg16", 1, 0.97, 0.99),
        ("resnet50", 1, 0.97, 0.97),
        ("alexnet", 4, 0.97, 0.99),
        ("resnet50", 4, 0.99, 0.99),
    ],
)
def test_networks_come_close_to_the_granule_bound(
    network: str, in_flight: int, whole: float, convolutions: float
) -> None:
    found = plans_of(network, in_flight)
    total = sum(cycles for _, _, cycles in found)
    assert sum(result.granule_bound for _, result, _ in found) / total >= whole
    only = [(p, c) for kernel, p, c in found if kernel.anchor.operation == "conv"]
    assert sum(p.granule_bound for p, _ in only) / sum(c for _, c in only) >= convolutions
    errors = [abs(p.predicted_cycles / cycles - 1) for _, p, cycles in found]
    assert sum(errors) / len(errors) <= 0.02
    assert max(errors) <= 0.12
    assert all(result.complete for _, result, _ in found)


@pytest.mark.slow
def test_kernels_alike_are_planned_once() -> None:
    cache: PlanCache = {}
    network = kernels.resnet50()
    plans = [Planner(MACHINE, cache=cache).plan(kernel) for kernel in network]
    assert len(cache) == 25
    assert all(found.complete for found in plans)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.conv(64, 64, 14, 3, residual=True),
        kernels.conv(64, 96, 14, 1, 2),
        kernels.conv(48, 64, 9, 5, groups=2),
        kernels.dense(1200, 400),
        kernels.pool(48, 20, 3, 2),
        kernels.lrn(64, 8),
    ],
    ids=lambda kernel: kernel.symbol,
)
@pytest.mark.parametrize("in_flight", [1, 4])
def test_the_target_times_what_the_enumeration_of_tiles_gives(
    kernel: kernels.Kernel, in_flight: int
) -> None:
    # The enumeration knows tiles, not instructions: fetching these is left out.
    machine = kernels.variant(MACHINE, in_flight=in_flight).with_values({"instruction_bytes": 0})
    clock = find_target("cambricon-x").timer(machine)
    assert clock is not None
    schedule = Planner(machine).plan(kernel).schedule
    assert clock(kernel, schedule) == run(kernel, schedule, machine).cycles


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_small_network_is_predicted(in_flight: int) -> None:
    errors = [abs(p.predicted_cycles / c - 1) for _, p, c in plans_of("lenet", in_flight)]
    assert sum(errors) / len(errors) <= 0.02
    assert max(errors) <= 0.12
