"""A machine of 8-bit integers whose scales are any floats: words against the graph's meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.targets.generic.kernel_cases import Case, KernelBuilder, lower_case
from tests.tile.interpreter import run

from tilewright.errors import TilewrightError
from tilewright.ir import SSAValue, f32, i8, i32
from tilewright.ir.types import Array, tensor
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timing import check_races, time_program

FILE = Path(__file__).parents[3] / "examples" / "machines" / "systolic-int8.toml"
MACHINE = load_machine(FILE)
INSTRUCTIONS = derive(MACHINE)


class Integers(KernelBuilder):
    """Kernels of int8, sums of int32, and factors of float32."""

    def given(self, array: Array, element: Any, layout: str = "") -> SSAValue:
        kind = tensor(array.shape, element, layout)
        self.arguments.append((kind, array))
        return self.block.insert_arg(kind, len(self.block.args))

    def bytes(self, *shape: int, layout: str = "") -> SSAValue:
        layout = layout or ("NHWC" if len(shape) == 4 else "")
        return self.given(self.random.integers(-128, 128, shape).astype(np.int8), i8, layout)

    def bias(self, *shape: int) -> SSAValue:
        return self.given(self.random.integers(-5000, 5000, shape).astype(np.int32), i32)

    def requantised(self, total: SSAValue, shape: Sequence[int], depth: int) -> SSAValue:
        """Scales of which results fill the range, and some pass it; the range cut or whole."""
        spread = self.random.uniform(0.5, 2, shape) / (40 * np.sqrt(depth))
        layout = "NHWC" if len(shape) == 4 else ""
        factor = self.given(spread.astype(np.float32), f32, layout)
        zero = int(self.random.integers(-20, 20))
        cut: dict[str, Any] = (
            {"minimum": zero, "maximum": 100} if self.random.random() < 0.5 else {}
        )
        return self.op("requantise_linear", total, factor, zero=zero, to="int8", **cut)


def convolution(seed: int) -> Case:
    build = Integers(seed)
    ci, co, kernel = (
        *(int(v) for v in build.random.integers(1, 60, 2)),
        int(build.random.choice([1, 3])),
    )
    x, w = build.bytes(1, ci, 12, 9), build.bytes(co, ci, kernel, kernel, layout="OHWI")
    operands = [x, w, *([build.bias(co)] if seed % 2 else [])]
    y = build.op("conv", *operands, pads=(kernel // 2,) * 4)
    spread = (1, 1, 1, 1) if seed % 3 == 0 else (1, co, 1, 1)
    return build.finish(build.requantised(y, spread, ci * kernel * kernel))


def depthwise(seed: int) -> Case:
    build = Integers(seed)
    c = int(build.random.integers(2, 50))
    x, w = build.bytes(1, c, 13, 10), build.bytes(c, 1, 3, 3, layout="OHWI")
    y = build.op("conv", x, w, build.bias(c), strides=(2, 1), pads=(1, 1, 1, 1), group=c)
    return build.finish(build.requantised(y, (1, c, 1, 1), 9))


def product(seed: int) -> Case:
    build = Integers(seed)
    rows, depth, columns = (int(v) for v in build.random.integers(1, (40, 900, 200)))
    operands = [build.bytes(rows, depth), build.bytes(columns, depth)]
    y = build.op("matmul", *operands, transpose_b=True)
    return build.finish(build.requantised(y, (1, columns), depth))


def sums(seed: int) -> Case:
    """A product that is not quantised again: its sums leave as they are."""
    build = Integers(seed)
    operands = [build.bytes(7, 300), build.bytes(33, 300), build.bias(33)]
    return build.finish(build.op("matmul", *operands, transpose_b=True))


def pair(seed: int) -> Case:
    build = Integers(seed)
    shape = (1, int(build.random.integers(1, 40)), 9, 12)
    first, second = (float(np.float32(v)) for v in build.random.uniform(-1, 1, 2))
    zeros: dict[str, Any] = {
        "first_zero": int(build.random.integers(-9, 9)),
        "second_zero": 3,
        "zero": -4,
    }
    operands = [build.bytes(*shape), build.bytes(*shape)]
    if seed % 2:
        y = build.op("mul_linear", *operands, factor=first / 60, to="int8", **zeros)
    else:
        factors: dict[str, Any] = {"first_factor": first, "second_factor": second, "minimum": -100}
        y = build.op("add_linear", *operands, to="int8", **zeros, **factors)
    return build.finish(y)


def function(seed: int) -> Case:
    build = Integers(seed)
    entries = tuple(int(v) for v in build.random.integers(-128, 128, 256))
    return build.finish(build.op("look_up", build.bytes(1, 20, 5, 6), table=entries, to="int8"))


def pool(seed: int) -> Case:
    build = Integers(seed)
    x = build.bytes(1, int(build.random.integers(1, 40)), 13, 10)
    sizes: dict[str, Any] = {"kernel": (3, 2), "pads": (1, 0, 1, 1), "strides": (2, 1)}
    return build.finish(build.op("max_pool", x, **sizes))


@pytest.mark.few(14)
@pytest.mark.parametrize("kind", [convolution, depthwise, product, sums, pair, function, pool])
@pytest.mark.parametrize("seed", range(4))
def test_words_and_tiles_compute_what_the_graph_means(
    kind: Callable[[int], Case], seed: int
) -> None:
    case = kind(seed)
    assert np.ptp(case.expected.astype(np.int64)) > 20
    found = Planner(MACHINE).plan(case.kernel)
    lowered = lower_case(case, found.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    tiles = run(lowered.tiles, case.operands, MACHINE)[case.kernel.output.name]
    np.testing.assert_array_equal(tiles, case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete
    assert not report.races
    assert time_program(lowered.program, kernels).cycles >= found.granule_bound


def test_scales_are_float32_and_ties_go_to_the_even_integer() -> None:
    """Requantising against exact arithmetic: the product is rounded to float32, then to an integer
    of [-128, 127]."""
    build = Integers(0)
    total = np.arange(-1024, 1024, dtype=np.int32).reshape(4, 512)
    x = build.given(total, i32)
    factor = np.array([[0.5]], np.float32)
    y = build.op("requantise_linear", x, build.given(factor, f32), zero=3, to="int8")
    case = build.finish(y)
    lowered = lower_case(case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE, INSTRUCTIONS)
    wanted = [[min(max(round(int(v) / 2) + 3, -128), 127) for v in row] for row in total]
    np.testing.assert_array_equal(lowered.run(), wanted)


def test_sums_of_int8_are_int32() -> None:
    with pytest.raises(TilewrightError, match="sums of int8 are int32, not float32"):
        MACHINE.with_values({"accumulator": "float32"})


def with_output(*elements: str) -> Machine:
    """The machine whose products write those elements alone."""
    primitive = MACHINE.primitive("matmul")
    output = primitive.operands["output"].model_copy(update={"elements": elements})
    operands = {**primitive.operands, "output": output}
    changed = primitive.model_copy(update={"operands": operands})
    others = [changed if one is primitive else one for one in MACHINE.primitives]
    return MACHINE.model_copy(update={"primitives": tuple(others)})


def test_results_that_a_primitive_does_not_write_are_refused() -> None:
    machine, instructions = with_output("int8"), derive(with_output("int8"))
    narrow, wide = product(1), sums(0)
    lowered = lower_case(
        narrow, Planner(machine).plan(narrow.kernel).schedule, machine, instructions
    )
    np.testing.assert_array_equal(lowered.run(), narrow.expected)
    schedule = Planner(machine).plan(wide.kernel).schedule
    with pytest.raises(TilewrightError, match="matmul writes int8, and the kernel's result is int"):
        lower_case(wide, schedule, machine, instructions)


def test_operands_are_taken_by_what_they_will_be() -> None:
    """Kernels are formed before numbers are chosen."""
    machine = load_machine(FILE.parent / "five-buffers.toml")
    assert machine.element_of("float32", "input") == "float16"
    assert machine.element_of("float32", "bias") == "float32"
    assert machine.element_of("int64", "input") == "int64"
