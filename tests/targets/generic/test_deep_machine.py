"""A machine with two levels of on-chip memory: words, races, predictions."""

from pathlib import Path

import numpy as np
import pytest
from tests.targets.generic.kernel_cases import Case, KernelBuilder, lower_case

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Budget, Planner
from tilewright.planning.space.levels import is_deep
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import timer
from tilewright.targets.generic.timing import check_races, time_program

FILE = Path(__file__).parents[3] / "examples" / "machines" / "five-buffers.toml"
MACHINE = load_machine(FILE).with_values({"element": "fixed16", "accumulator": "fixed32"})
"""On integers, so that words can be compared bit for bit."""
INSTRUCTIONS = derive(MACHINE)


SHAPES = (
    *((64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (128, 128, 28, 3, 1), (256, 512, 14, 3, 2)),
    *((512, 512, 7, 3, 1), (512, 2048, 7, 1, 1), (3, 64, 112, 7, 2), (1024, 256, 14, 1, 1)),
)
"""Input and output channels, size, kernel and stride of layers of ResNet-50."""


def convolution(
    seed: int, ci: int, co: int, size: int, kernel: int, stride: int = 1, *, residual: bool = False
) -> Case:
    build = KernelBuilder(seed)
    x = build.image(1, ci, size, size)
    weight = build.operand((co, ci, kernel, kernel), 10, layout="OHWI")
    y = build.op(
        "conv",
        *(x, weight, build.operand((co,), 18, bits=32)),
        strides=(stride, stride),
        pads=(kernel // 2,) * 4,
        dilations=(1, 1),
        group=1,
    )
    if residual:
        y = build.op("add", y, build.image(1, co, -(-size // stride), -(-size // stride)))
    return build.finish(build.op("requantise", build.op("relu", y), result=(16, 6)))


def product(seed: int, rows: int, depth: int, columns: int) -> Case:
    build = KernelBuilder(seed)
    x, weight = build.operand((rows, depth), 8), build.operand((columns, depth), 10)
    y = build.op("matmul", x, weight, transpose_b=True)
    return build.finish(build.op("requantise", y, result=(16, 6)))


CASES = {
    "3x3": lambda: convolution(1, 40, 50, 24, 3),
    "1x1": lambda: convolution(2, 96, 200, 17, 1),
    "stride": lambda: convolution(3, 33, 24, 40, 3, 2, residual=True),
    "first": lambda: convolution(4, 3, 32, 60, 7, 2),
    "deep": lambda: convolution(5, 300, 100, 7, 3),
    "rows": lambda: product(6, 70, 300, 130),
    "vector": lambda: product(7, 1, 500, 300),
    "deep with a residual": lambda: convolution(11, 960, 160, 7, 1, residual=True),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CASES)
def test_words_compute_what_the_graph_means_at_the_price_foretold(name: str) -> None:
    case = CASES[name]()
    found = Planner(MACHINE).plan(case.kernel)
    lowered = lower_case(case, found.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete
    assert not report.races
    assert not report.unwritten
    timeline = time_program(lowered.program, kernels)
    assert timeline.cycles >= found.granule_bound
    assert 0.88 < found.predicted_cycles / timeline.cycles < 1.12


def small(**changes: int) -> Machine:
    """The machine with other sizes of memories."""
    return MACHINE.with_values({f"memory.{name}.bytes": size for name, size in changes.items()})


@pytest.mark.parametrize(
    "machine",
    [small(l1=65_536), small(l0a=4096, l0b=4096), small(l0c=8192), small(ub=8192)],
    ids=["l1", "l0", "l0c", "ub"],
)
def test_smaller_memories_at_each_level(machine: Machine) -> None:
    case = convolution(8, 48, 64, 20, 3)
    found = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, found.schedule, machine, derive(machine))
    np.testing.assert_array_equal(lowered.run(), case.expected)


@pytest.mark.slow
def test_predictions_are_close_in_the_mean() -> None:
    time = timer(MACHINE, INSTRUCTIONS)
    errors: list[float] = []
    for seed, (ci, co, size, kernel, stride) in enumerate(SHAPES):
        build = KernelBuilder(seed)
        x = build.image(1, ci, size, size)
        weight = build.operand((co, ci, kernel, kernel), 10, layout="OHWI")
        y = build.op(
            "conv",
            *(x, weight),
            strides=(stride, stride),
            pads=(kernel // 2,) * 4,
            dilations=(1, 1),
            group=1,
        )
        kernel_ = build.plan_only(build.op("requantise", y, result=(16, 6)))
        found = Planner(MACHINE, budget=Budget(greedy=False)).plan(kernel_)
        errors.append(abs(found.predicted_cycles / time(kernel_, found.schedule) - 1))
    assert np.mean(errors) < 0.02
    assert max(errors) < 0.12


def test_only_products_pass_two_memories() -> None:
    assert is_deep(MACHINE, MACHINE.primitive("mmad"))
    assert not is_deep(MACHINE, MACHINE.primitive("pool"))


def test_a_kernel_of_which_no_tile_fits_is_refused() -> None:
    machine = small(l0b=32)
    with pytest.raises(TilewrightError, match="plan-capacity"):
        Planner(machine).plan(convolution(9, 48, 64, 20, 3).kernel)


def test_residuals_leave_room_for_results_on_their_way() -> None:
    machine = small(ub=32_768)
    case = convolution(10, 16, 160, 28, 1, residual=True)
    found = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, found.schedule, machine, derive(machine))
    np.testing.assert_array_equal(lowered.run(), case.expected)
