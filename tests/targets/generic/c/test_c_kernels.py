"""Kernels in C on the host's functions: bit for bit, in every order that their waits allow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.generic import test_int8_machine as int8
from tests.targets.generic.c.c_kernels import emitted, with_c
from tests.targets.generic.kernel_cases import CASES, Case, lrn_case, random_case

from tilewright.machine.load import load_machine
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X

EXAMPLES = Path(__file__).parents[4] / "examples" / "machines"
SMALL = load_machine(EXAMPLES / "small-npu-c.toml")
WIDE = with_c(CAMBRICON_X)
NARROW = with_c(int8.MACHINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c")


def case_of(seed: int) -> Case:
    while CASES[seed % len(CASES)] is lrn_case:
        seed += 1
    return random_case(seed)


@pytest.mark.parametrize("seed", but_fast(range(3 * len(CASES)), range(len(CASES))))
def test_kernels_compute_what_the_graph_means(seed: int, folder: Path) -> None:
    kernel = emitted(case_of(seed), WIDE)
    library = kernel.build(folder / f"wide{seed}")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)


@pytest.mark.parametrize("seed", range(5))
def test_kernels_of_8_bits(seed: int, folder: Path) -> None:
    kinds = (int8.convolution, int8.product, int8.depthwise, int8.pool, int8.points)
    kernel = emitted(kinds[seed](seed), NARROW)
    library = kernel.build(folder / f"narrow{seed}")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), kernel.lowered.case.expected)
