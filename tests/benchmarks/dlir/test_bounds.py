"""The bound of a network: compute and traffic of its kernels may overlap, as far as memories go."""

from __future__ import annotations

from itertools import pairwise

import pytest
from benchmarks.papers.dlir.bounds import ahead, chained, network_bound

from tests.planning import planning_kernels as kernels
from tilewright.planning.cost.bounds import granule_bound, main_bandwidth
from tilewright.targets.cambricon_x.machine import MACHINE

CONV = MACHINE.primitive("conv")


def test_traffic_beside_computes_takes_no_time() -> None:
    assert chained([10, 10, 10], [10, 10, 10], 5) == 30
    assert chained([10, 0, 10], [0, 10, 0], 5) == 20


def test_what_memories_cannot_hold_waits_for_the_kernel_before() -> None:
    """Of 40 cycles' traffic 5 come before and 5 go behind."""
    assert chained([10, 0, 10], [0, 40, 0], 5) == 10 + (40 - 2 * 5) + 10
    assert chained([10, 0, 0, 10], [0, 20, 20, 0], 5) == 10 + (40 - 2 * 5) + 10


def test_all_traffic_passes_main_memory() -> None:
    assert chained([1, 1], [30, 30], 1000) == 60


def test_it_lies_between_the_largest_kernel_and_the_sum() -> None:
    network = [kernels.conv(64, 64, 28, 3), kernels.dense(512, 512), kernels.conv(64, 64, 28, 1)]
    own = [granule_bound(kernel, MACHINE, CONV) for kernel in network]
    found = network_bound(network, MACHINE)
    assert max(own) < found < sum(own)
    grown = [network_bound(network[:count], MACHINE) for count in range(1, 4)]
    assert all(less < more for less, more in pairwise(grown))


def test_a_layer_of_weights_that_no_memory_holds_counts_in_full_but_for_its_ends() -> None:
    conv, layer = kernels.conv(64, 64, 28, 3), kernels.dense(9216, 4096)
    apart = granule_bound(conv, MACHINE, CONV) + granule_bound(layer, MACHINE, CONV)
    assert ahead(MACHINE) == 512 == 64 * 1024 / main_bandwidth(MACHINE)
    assert network_bound([conv, layer], MACHINE) == pytest.approx(apart - 2 * ahead(MACHINE))
