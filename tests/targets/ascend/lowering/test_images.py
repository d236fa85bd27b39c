"""Convolutions from tile programs, against a product for each tap."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers.ascend.handovers import synchronised
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, run
from tests.targets.ascend.cube_kernels import Convolution, levels, planned, program_of

from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.target import AscendTarget
from tilewright.targets.ascend.timing import simulate
from tilewright.tile.dialect import BufferOp
from tilewright.tile.lower import tile

CASES = {
    "1 x 1": Convolution(16, 8, 16, 16, (1, 1)),
    "strided": Convolution(20, 13, 13, 33, strides=(2, 2), pads=(1, 1, 1, 1), relu=True),
    "strided 1 x 1": Convolution(33, 14, 14, 40, (1, 1), strides=(2, 2)),
    "all that follows": Convolution(
        33, 7, 7, 40, pads=(1, 1, 1, 1), bias=True, relu=True, residual=True
    ),
    "first layer": Convolution(
        3, 30, 29, 17, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3), bias=True, relu=True
    ),
    "nothing alike": Convolution(
        17, 9, 11, 5, (2, 3), (1, 2), (2, 1), (0, 2, 1, 1), images=2, residual=True
    ),
    "an output": Convolution(5, 3, 3, 3),
    "more positions than pixels": Convolution(16, 6, 5, 16, (1, 1), pads=(0, 9, 0, 8), bias=True),
}


def check(of: Convolution, schedule: Schedule | None = None) -> None:
    kernel = of.of_kernel()
    program = built(program_of(kernel, schedule or planned(kernel)))
    layout = Layout.parse("NCHW16c", 4)
    for order in (0, 1, 5, 12, 100):
        given, expected = of.arguments(order)
        run(program, given, order)
        np.testing.assert_array_equal(layout.unpack(given["c"], expected.shape), expected)


@pytest.mark.parametrize(
    "name",
    but_fast(list(CASES), ["nothing alike", "all that follows", "more positions than pixels"]),
)
def test_planned_convolutions_are_exact(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_buffers_lie_where_the_tile_program_says(name: str) -> None:
    kernel = CASES[name].of_kernel()
    lowered = tile(
        kernel, planned(kernel), network_machine(ASCEND_910), honours=AscendTarget.honours
    )
    program = cube_kernel(lowered, ASCEND_910, "kernel")
    keys = ("address", "bytes", "slots")
    stated = [
        (op.memory, *(op.get(key) for key in keys))
        for op in lowered.walk()
        if isinstance(op, BufferOp)
    ]
    assert [(b.memory, b.address, b.bytes, b.slots) for b in program.buffers] == stated


def random_convolution(seed: int) -> Convolution:
    random = np.random.default_rng(seed)

    def pair(least: int, most: int) -> tuple[int, int]:
        one, other = random.integers(least, most + 1, 2)
        return int(one), int(other)

    kernel, dilations = pair(1, 4), pair(1, 3)
    pads = (*pair(0, 2), *pair(0, 2))
    height, width = (
        int(random.integers(4, 20)) + size * dilation
        for size, dilation in zip(kernel, dilations, strict=True)
    )
    channels = int(random.choice([1, 3, 4, 16, 17, 64]))
    results = int(random.choice([1, 7, 16, 40]))
    flags = [bool(one) for one in random.integers(0, 2, 3)]
    return Convolution(
        channels, height, width, results, kernel, pair(1, 3), dilations, pads, 1, *flags
    )


@pytest.mark.parametrize("seed", but_fast(range(24), [3, 8]))
def test_convolutions_at_random(seed: int) -> None:
    check(random_convolution(seed))


@pytest.mark.parametrize("slots", [1, 2])
def test_tiles_of_rows_and_channels(slots: int) -> None:
    """Rows cut in L1, so that padding differs from tile to tile, and again next to the cube."""
    of = Convolution(40, 21, 10, 40, pads=(2, 1, 2, 1), strides=(2, 1), residual=True, relu=True)
    outer = {"n": 1, "co": 32, "oh": 5, "ci": 40}
    inner = {"n": 1, "co": 16, "oh": 2, "ci": 32, "kh": 1, "kw": 1}
    schedule = levels(outer, inner, ("oh", "co"), ("co", "oh", "ci", "kh", "kw"), slots, "conv")
    check(of, schedule)


def test_tiles_of_several_images() -> None:
    """Three images, of which L1 holds two, and the last tile one."""
    of = Convolution(20, 6, 5, 18, pads=(1, 1, 1, 1), images=3, bias=True, residual=True)
    outer = {"n": 2, "co": 18, "oh": 4, "ci": 20}
    inner = {"n": 1, "co": 16, "oh": 2, "ci": 20, "kh": 1, "kw": 1}
    order = ("n", "co", "oh", "ci", "kh", "kw")
    check(of, levels(outer, inner, ("n", "oh"), order, 1, "conv"))


@pytest.mark.slow
def test_a_layer_of_resnet() -> None:
    """The cube is busy most of the time, though all channels pass L1 more than once."""
    of = Convolution(64, 56, 56, 64, pads=(1, 1, 1, 1), bias=True, relu=True)
    kernel = of.of_kernel()
    program = synchronised(program_of(kernel, planned(kernel)))
    found = simulate(program, ASCEND_910)
    assert found.cube > 0.85
    image, weights = 64 * 56 * 56 * 2, 64 * 64 * 9 * 2
    assert found.main_bytes <= 4 * image + weights
