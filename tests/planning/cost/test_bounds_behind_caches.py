"""Bounds of machines that keep operands in main memory: below what any loop nest can take."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning.planning_kernels import conv
from tilewright.machine import Machine
from tilewright.planning.cost.bounds import granule_bound, inside_fraction, physical_bound
from tilewright.planning.domain import Kernel
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import Processor

MACHINE: Machine = machine(Processor(lanes=16, registers=32, vectors_per_cycle=1.0))


def of(kernel: Kernel, primitive: str, on: Machine = MACHINE) -> tuple[float, float]:
    found = on.primitive(primitive)
    return physical_bound(kernel, on, found), granule_bound(kernel, on, found)


@pytest.mark.parametrize("seed", range(4))
def test_inner_positions_are_counted_one_by_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, kernel, stride = random.integers((5, 1, 1), (12, 5, 3)).tolist()
    pad = int(random.integers(0, kernel))
    out = (size + 2 * pad - kernel) // stride + 1
    inside = sum(0 <= y * stride + k - pad < size for y in range(out) for k in range(kernel)) / (
        out * kernel
    )
    found = inside_fraction(conv(8, 8, size, kernel, stride, pad))
    assert found == pytest.approx(inside**2)


def test_general_primitive_promises_no_more_than_vectors_give() -> None:
    kernel = conv(16, 16, 14, 1)
    physical, granule = of(kernel, "general")
    assert granule == physical == pytest.approx(of(kernel, "conv")[0])


def test_granule_rounds_output_channels_but_not_input_channels() -> None:
    physical, granule = of(conv(20, 20, 28, 1), "conv")
    assert physical == pytest.approx(28 * 28 * 20 * 20 / 16)
    assert granule == pytest.approx(28 * 28 * 20 * 2)


def test_what_fits_the_caches_need_not_come_from_main_memory() -> None:
    # A vector times a matrix: 2 bytes of weights for each multiply-add.
    rate = MACHINE.memory("dram").bytes_per_cycle or 0.0
    small, large = conv(256, 256, 1, 1), conv(8192, 8192, 1, 1)
    assert of(small, "conv")[0] < 256 * 256 * 2 / rate
    held = sum(m.bytes or 0 for m in MACHINE.memories if m.granule == 1 and m.bytes)
    assert of(large, "conv")[0] == pytest.approx((8192 * 8192 * 2 - held) / rate, rel=0.01)


def test_software_managed_memories_keep_their_bounds() -> None:
    from tilewright.targets.cambricon_x.machine import MACHINE as accelerator

    kernel = conv(16, 17, 8)
    physical, granule = of(kernel, "conv", accelerator)
    assert physical == pytest.approx(8 * 8 * 9 * 16 * 17 / 256)
    assert granule == 8 * 8 * 9 * 2
