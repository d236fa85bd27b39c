"""Words against the graph's meaning, bit for bit, and free of races, for tiles of all sizes."""

from dataclasses import replace

import numpy as np
import pytest
from tests.slow import but_fast, crossed
from tests.targets.dpu.lowering import lowered_cases
from tests.targets.dpu.lowering.lowered_cases import image, lower_case
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.errors import TilewrightError
from tilewright.graph.operation import Operation
from tilewright.ir import UnitAttr
from tilewright.planning import Planner
from tilewright.targets.dpu.core import ISA0, ZU2, Core
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.registers import BIASES, REGISTERS
from tilewright.targets.dpu.timer import timer
from tilewright.targets.dpu.timing import time_program

SMALL = Core("small", 4, 4, misc_rows=2, elementwise_rows=2)
"""Few channels at once, so that small layers have several groups of them."""

KINDS = ("convolution", "first_layer", "product", "depthwise", "pool", "points")


def crowded(core: Core, part: int):
    """The machine of a core of which a part of the banks is used, so that there are many tiles."""
    machine = machine_of(core)
    values = {
        f"memory.{memory.name}.bytes": (memory.bytes or 0) // part
        for memory in machine.memories
        if memory.name in ("vb0", "vb1", "weight")
    }
    return machine.with_values(values)


def check(kind: str, seed: int, core: Core, part: int) -> None:
    case = getattr(lowered_cases, kind)(seed)
    lowered = lower_case(case, core, crowded(core, part))
    assert not lowered.segments.problems()
    np.testing.assert_array_equal(lowered.run(), case.expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", but_fast(range(6), [1]))
def test_words_compute_what_the_graph_means(kind: str, seed: int) -> None:
    check(kind, seed, SMALL, 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6, 16))
def test_words_compute_what_the_graph_means_on_other_cores(kind: str, seed: int) -> None:
    check(kind, seed, (SMALL, ZU2)[seed % 2], (1, 4, 16)[seed % 3])


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["convolution", "product", "depthwise", "points"])
def test_the_older_instructions_compute_the_same(kind: str) -> None:
    check(kind, 3, replace(ISA0, rows=4, channels=4, misc_rows=2), 4)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(8))
def test_rows_of_windows_become_channels(seed: int) -> None:
    case = lowered_cases.first_layer(seed)
    machine = crowded(ZU2, (1, 4)[seed % 2])
    # For some of them the plain convolution is faster.
    primitives = tuple(p for p in machine.primitives if p.name != "conv")
    lowered = lower_case(case, ZU2, machine.model_copy(update={"primitives": primitives}))
    assert lowered.schedule.primitive == "conv-few"
    assert not lowered.segments.problems()
    np.testing.assert_array_equal(lowered.run(), case.expected)


@pytest.mark.few(2)
@pytest.mark.parametrize(("seed", "behind"), crossed(range(6), [False, True]))
def test_windows_that_are_loaded_one_by_one_are_planned_so(seed: int, behind: bool) -> None:
    """The bytes of the words are those of the plan, alone and in a chain."""
    build = KernelBuilder(seed)
    pick = build.random
    ci, kernel = int(pick.integers(1, 4)), (int(pick.integers(1, 6)), int(pick.integers(2, 6)))
    strides = int(pick.integers(1, 4)), int(pick.integers(1, min(kernel[1], 3) + 1))
    pads = tuple(int(pick.integers(0, kernel[axis % 2] // 2 + 1)) for axis in range(4))
    x = image(build, 1, ci, *(int(v) for v in pick.integers(24, 70, 2)))
    y = build.op(
        "conv", x, build.operand((17, ci, *kernel), 5, 8, "OHWI"), strides=strides, pads=pads
    )
    y = build.op("requantise", y, result=(8, 4))
    if behind:
        y = build.op("max_pool", y, kernel=(2, 3), strides=(2, 2))
        first = y.owner
        assert isinstance(first, Operation)
        first.begins = UnitAttr()
    case, machine = build.finish(y), crowded(ZU2, (4, 8)[seed % 2])
    planned = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, ZU2, machine, planned.schedule)
    (program,) = lowered.segments.programs
    biases = sum(
        op.fields["channel"]
        for op in program
        if op.mnemonic == "load" and op.fields["reg_id"] == REGISTERS[BIASES]
    )
    assert time_program(ZU2, program).main_bytes - biases == planned.moved_bytes
    np.testing.assert_array_equal(lowered.run(), case.expected)


@pytest.mark.parametrize(
    ("channels", "size", "outputs", "kernel"),
    [pytest.param(3, 208, 16, 3, marks=pytest.mark.slow), (48, 13, 192, 1), (32, 27, 128, 1)],
)
def test_predictions_know_that_instructions_are_of_rows(
    channels: int, size: int, outputs: int, kernel: int
) -> None:
    """Each row has a latency, and engines take turns at the dispatcher."""
    build = KernelBuilder(1)
    weight = build.operand((outputs, channels, kernel, kernel), 5, 8, "OHWI")
    x = image(build, 1, channels, size, size)
    y = build.op("conv", x, weight, pads=(kernel // 2,) * 4)
    case = build.finish(build.op("requantise", y, result=(8, 4)))
    planned = Planner(machine_of(ZU2)).plan(case.kernel)
    cycles = timer(ZU2, machine_of(ZU2))(case.kernel, planned.schedule)
    assert abs(planned.predicted_cycles / cycles - 1) < 0.06


@pytest.mark.few(2)
@pytest.mark.parametrize(("rows", "stride"), [(13, 1), (16, 2), (25, 2), (9, 3)])
def test_windows_of_many_rows_have_fewer_of_them_at_once(rows: int, stride: int) -> None:
    build = KernelBuilder(rows)
    x = image(build, 1, 20, 41, 7)
    y = build.op("max_pool", x, kernel=(rows, 2), strides=(stride, 1), pads=(2, 0, 2, 0))
    case = build.finish(y)
    lowered = lower_case(case, ZU2, crowded(ZU2, 4))
    assert not lowered.segments.problems()
    np.testing.assert_array_equal(lowered.run(), case.expected)
    build = KernelBuilder(rows)
    weight = build.operand((13, 8, min(rows, 16), 2), 5, 8, "OHWI")
    y = build.op("conv", image(build, 1, 8, 41, 7), weight, strides=(stride, 1))
    case = lowered_cases.closed(build, y, 9)
    lowered = lower_case(case, ZU2)
    assert not lowered.segments.problems()
    np.testing.assert_array_equal(lowered.run(), case.expected)


def dilated(build: KernelBuilder):
    weight = build.operand((8, 8, 3, 3), 5, 8, "OHWI")
    return build.op("conv", image(build, 1, 8, 12, 12), weight, dilations=(2, 2))


def padded(build: KernelBuilder):
    """The last window reads nothing but padding."""
    weights = build.operand((8, 8, 1, 2), 5, 8, "OHWI")
    return build.op("conv", image(build, 1, 8, 12, 12), weights, pads=(0, 0, 0, 2))


def clipped(build: KernelBuilder):
    y = build.op("conv", image(build, 1, 8, 12, 12), build.operand((8, 8, 1, 1), 5, 8, "OHWI"))
    return build.op("clip", y, minimum=0.0, maximum=5.0)


def with_wide_bias(build: KernelBuilder):
    operands = image(build, 1, 8, 12, 12), build.operand((8, 8, 1, 1), 5, 8, "OHWI")
    return build.op("conv", *operands, build.operand((8,), 9, bits=32))


def exact_sum(build: KernelBuilder):
    return build.op("add", image(build, 1, 8, 9, 9), image(build, 1, 8, 9, 9, fraction=2))


def partial_average(build: KernelBuilder):
    return build.op("average_pool", image(build, 1, 8, 9, 9), kernel=(3, 3), pads=(1, 1, 1, 1))


def tall_window(build: KernelBuilder):
    """Its 17 rows lie in five turns round four banks."""
    return build.op("max_pool", image(build, 1, 8, 24, 6), kernel=(17, 2), strides=(1, 1))


REFUSED = {
    "lower-dilation": dilated,
    "lower-padding": padded,
    "lower-activation": clipped,
    "lower-bias": with_wide_bias,
    "lower-sum": exact_sum,
    "lower-average": partial_average,
    "lower-window": tall_window,
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_no_instruction_says_is_refused(code: str) -> None:
    build = KernelBuilder(1)
    y = REFUSED[code](build)
    if code not in ("lower-average", "lower-window"):
        y = build.op("requantise", y, result=(8, 4))
    with pytest.raises(TilewrightError, match=code):
        lower_case(build.finish(y), ZU2)


def test_a_kernel_that_fits_nowhere_is_told_of_the_memory() -> None:
    build = KernelBuilder(1)
    y = build.op("conv", image(build, 1, 64, 12, 12), build.operand((64, 64, 3, 3), 5, 8, "OHWI"))
    case = build.finish(build.op("requantise", y, result=(8, 4)))
    described = machine_of(ZU2).with_values({"memory.weight.bytes": 512})
    with pytest.raises(TilewrightError, match=r"plan-capacity.*weight") as caught:
        Planner(described).plan(case.kernel)
    assert "before it" not in str(caught.value)


def test_shifts_to_the_left_are_refused() -> None:
    build = KernelBuilder(1)
    y = build.op("conv", image(build, 1, 8, 12, 12), build.operand((8, 8, 1, 1), 5, 8, "OHWI"))
    with pytest.raises(TilewrightError, match=r"lower-shift.*shift to the right by -1"):
        lower_case(build.finish(build.op("requantise", y, result=(8, 10))), ZU2)
