"""A machine of 8-bit fixed point: words against the graph's meaning, bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from tests.targets.generic.kernel_cases import Case, KernelBuilder, lower_case

from tilewright.graph.operations import BY_NAME
from tilewright.ir import Block, VerifyException
from tilewright.ir.types import FixedType, tensor
from tilewright.machine.load import load_machine
from tilewright.numerics import fixed
from tilewright.planning import Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timing import check_races, time_program

FILE = Path(__file__).parents[3] / "examples" / "machines" / "systolic-int8.toml"
MACHINE = load_machine(FILE).with_values({"element": "fixed8", "accumulator": "fixed32"})
INSTRUCTIONS = derive(MACHINE)


def image(build: KernelBuilder, *shape: int, fraction: int = 4):
    return build.operand(shape, fraction, 8, "NHWC")


def convolution(seed: int) -> Case:
    build = KernelBuilder(seed)
    pick = build.random
    ci, co, kernel = int(pick.integers(1, 70)), int(pick.integers(1, 60)), int(pick.choice([1, 3]))
    size, stride = int(pick.integers(5, 22)), int(pick.choice([1, 2]))
    x = image(build, 1, ci, size, size)
    weight = build.operand((co, ci, kernel, kernel), 5, 8, "OHWI")
    y = build.op(
        "conv",
        *(x, weight, build.operand((co,), 9, bits=32)),
        strides=(stride, stride),
        pads=(kernel // 2,) * 4,
        dilations=(1, 1),
        group=1,
    )
    if pick.random() < 0.5:
        extent = (size + 2 * (kernel // 2) - kernel) // stride + 1
        y = build.op("add", y, image(build, 1, co, extent, extent, fraction=3))
    return build.finish(build.op("requantise", build.op("relu", y), result=(8, 2)))


def product(seed: int) -> Case:
    build = KernelBuilder(seed)
    rows, depth, columns = (int(v) for v in build.random.integers(1, (40, 400, 200)))
    x, weight = build.operand((rows, depth), 4, 8), build.operand((columns, depth), 6, 8)
    y = build.op("matmul", x, weight, transpose_b=True)
    return build.finish(build.op("requantise", y, result=(8, 1)))


def depthwise(seed: int) -> Case:
    build = KernelBuilder(seed)
    c = int(build.random.integers(2, 50))
    x, weight = image(build, 1, c, 14, 11), build.operand((c, 1, 3, 3), 5, 8, "OHWI")
    y = build.op("conv", x, weight, strides=(1, 1), pads=(1, 1, 1, 1), group=c)
    return build.finish(build.op("requantise", y, result=(8, 3)))


def pool(seed: int) -> Case:
    build = KernelBuilder(seed)
    x = image(build, 1, int(build.random.integers(1, 40)), 13, 10)
    name = "max_pool" if seed % 2 else "average_pool"
    values = {} if seed % 2 else {"counted": (0, 0, 0, 0)}
    return build.finish(
        build.op(name, x, result=(8, 4), kernel=(3, 2), pads=(1, 0, 1, 1), strides=(2, 1), **values)
    )


def points(seed: int) -> Case:
    build = KernelBuilder(seed)
    shape = (1, int(build.random.integers(1, 40)), 9, 12)
    y = build.op("add", image(build, *shape), image(build, *shape, fraction=2))
    return build.finish(build.op("requantise", y, result=(8, 1)))


@pytest.mark.parametrize("kind", [convolution, product, depthwise, pool, points])
@pytest.mark.parametrize("seed", range(4))
def test_words_compute_what_the_graph_means(kind, seed: int) -> None:
    case = kind(seed)
    assert case.expected.dtype == np.int8
    found = Planner(MACHINE).plan(case.kernel)
    lowered = lower_case(case, found.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete
    assert not report.races
    assert time_program(lowered.program, kernels).cycles >= found.granule_bound


def test_eight_bits_are_rounded_half_up_and_saturated() -> None:
    sums = np.arange(-(1 << 12), 1 << 12, dtype=np.int32)
    for shift in range(-2, 9):
        exact = np.floor(sums.astype(np.float64) * 2.0**-shift + 0.5)
        wanted = np.clip(exact, -128, 127).astype(np.int8)
        np.testing.assert_array_equal(fixed.requantise(sums, shift, 0, np.int8), wanted)


def test_results_of_other_widths_are_refused() -> None:
    block = Block(arg_types=[tensor((4,), FixedType.of(32, 8))])
    made = BY_NAME["requantise"].build_from(
        block.args, {}, node="", result_type=tensor((4,), FixedType.of(12, 3))
    )
    with pytest.raises(VerifyException, match="8 or 16 bits"):
        made.verify()
