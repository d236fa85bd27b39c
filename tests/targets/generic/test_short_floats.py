"""Machines of 16-bit floats with sums in float32: words and tiles against float64.

The bound is the one that any order of the sums keeps (Higham, "Accuracy and stability of numerical
algorithms", 2nd edition, section 3.1): products of 16-bit floats are exact in float32, so a sum of
K terms is off by K units of float32 of the sum of their magnitudes at most, and rounding it to 16
bits adds half a unit in the last place of the result, or half the least number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.targets.generic.kernel_cases import Case, KernelBuilder, lower_case
from tests.tile.interpreter import run

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.operations import Operation
from tilewright.ir import SSAValue, bf16, f16
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.numerics.element_types import ELEMENTS, rounded
from tilewright.planning import Planner
from tilewright.targets.base import find_target
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timing import check_races, time_program

MACHINES = Path(__file__).parents[3] / "examples" / "machines"
HERE = Path(__file__).parent
ELEMENT = {"float16": f16, "bfloat16": bf16}
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance from 1 to the next number."""

LEAST = {"float16": 2.0**-25, "bfloat16": 2.0**-134}
"""Half the least number above 0."""


def machine_of(file: Path, element: str, **others: str) -> Machine:
    machine = load_machine(file)
    return machine.with_values({"element": element, "accumulator": "float32", **others})


FIVE = MACHINES / "five-buffers.toml"
ONE = HERE / "one_scratchpad.toml"


class Floats(KernelBuilder):
    """Kernels that end in a rounding to the machine's elements."""

    def __init__(self, seed: int, element: str) -> None:
        super().__init__(seed, fixed=False, element=ELEMENT[element])
        self.name = element

    def stored(self, value: SSAValue) -> Case:
        return self.finish(self.op("cast", value, to=self.name))


def convolution(seed: int, element: str) -> Case:
    build = Floats(seed, element)
    pick = build.random
    ci, co, kernel = int(pick.integers(1, 40)), int(pick.integers(1, 40)), int(pick.choice([1, 3]))
    x = build.image(1, ci, 11, 13)
    weight = build.operand((co, ci, kernel, kernel), layout="OHWI")
    operands = [x, weight, *([build.operand((co,), bits=32)] if seed % 2 else [])]
    y = build.op("conv", *operands, pads=(kernel // 2,) * 4)
    if seed % 3 == 0:
        y = build.op("add", y, build.image(1, co, 11, 13))
    return build.stored(build.op("relu", y))


def product(seed: int, element: str) -> Case:
    build = Floats(seed, element)
    rows, depth, columns = (int(v) for v in build.random.integers(1, (40, 700, 200)))
    operands = [build.operand((rows, depth)), build.operand((columns, depth))]
    return build.stored(build.op("matmul", *operands, transpose_b=True))


def depthwise(seed: int, element: str) -> Case:
    build = Floats(seed, element)
    c = int(build.random.integers(2, 50))
    x, weight = build.image(1, c, 14, 11), build.operand((c, 1, 3, 3), layout="OHWI")
    bias = build.operand((c,), bits=32)
    return build.stored(build.op("conv", x, weight, bias, pads=(1, 1, 1, 1), group=c))


def pool(seed: int, element: str) -> Case:
    build = Floats(seed, element)
    x = build.image(1, int(build.random.integers(1, 40)), 13, 10)
    attributes: dict[str, Any] = {"kernel": (3, 2), "pads": (1, 0, 1, 1), "strides": (2, 1)}
    return build.finish(build.op("max_pool" if seed % 2 else "average_pool", x, **attributes))


def points(seed: int, element: str) -> Case:
    build = Floats(seed, element)
    shape = (1, int(build.random.integers(1, 40)), 9, 12)
    names = ("add", "mul", "tanh", "sigmoid")
    name = names[seed % len(names)]
    operands = [build.image(*shape) for _ in range(2 if name in ("add", "mul") else 1)]
    return build.stored(build.op(name, *operands))


KINDS: tuple[Callable[[int, str], Case], ...] = (convolution, product, depthwise, pool, points)


def exact(case: Case) -> tuple[Array, Array]:
    """The kernel's result in float64, and how far any right engine may be from it before the last
    rounding."""
    kernel = next(op for op in network_of(case.module).block.ops if isinstance(op, KernelOp))
    block, names = kernel.body.block, list(case.operands)
    values: dict[SSAValue, tuple[Array, Array]] = {}
    last = block.args[0]
    assert len(names) == len(block.args)
    for argument, name in zip(block.args, names, strict=True):
        array = case.operands[name].astype(np.float64)
        values[argument] = (array, np.zeros(array.shape))
    unit = 2.0**-24
    for op in block.ops:
        if not isinstance(op, Operation) or op.operation == "cast":
            continue
        inputs = [values[value][0] for value in op.inputs]
        errors = [values[value][1] for value in op.inputs]
        wide = _evaluated(op, inputs)
        error = np.zeros(wide.shape)
        if op.operation in ("conv", "matmul"):
            depth = inputs[1].size // wide.shape[1]
            sizes = _evaluated(op, [np.abs(array) for array in inputs])
            error = (depth + 1) * unit * sizes
        elif op.operation == "average_pool":
            error = 8 * unit * _evaluated(op, [np.abs(inputs[0])])
        elif op.operation not in ("relu", "max_pool"):
            error = sum(errors, np.zeros(wide.shape)) + 8 * unit * np.abs(wide)
        else:
            error = error + errors[0] if op.operation == "relu" else error
        values[op.result] = (wide, error)
        last = op.result
    return values[last]


def _evaluated(op: Operation, inputs: list[Array]) -> Array:
    """Operations compute in the type of their operands, but for 16 bits: here in float64."""
    from tilewright.numerics import pointwise, reference

    match op.operation:
        case "conv":
            x, weight = inputs[:2]
            found = reference.conv2d(
                x,
                weight,
                op.integers("strides"),
                op.integers("pads"),
                op.integers("dilations"),
                op.integer("group", 1, 1 << 20),
            )
            return found if len(inputs) == 2 else found + inputs[2][:, None, None]
        case "matmul":
            return inputs[0] @ inputs[1].T
        case "max_pool" | "average_pool":
            kernel, strides, pads = (op.integers(k) for k in ("kernel", "strides", "pads"))
            if op.operation == "max_pool":
                return reference.max_pool2d(inputs[0], kernel, strides, pads, (1, 1))
            return reference.average_pool2d(inputs[0], kernel, strides, pads, (0, 0, 0, 0))
        case name:
            return pointwise.evaluate(name, inputs, attributes=op.values)


@pytest.mark.few(6)
@pytest.mark.parametrize("element", ELEMENT)
@pytest.mark.parametrize("file", [FIVE, ONE], ids=["five-buffers", "one-scratchpad"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_words_and_tiles_keep_the_bound(
    kind: Callable[[int, str], Case], file: Path, element: str, seed: int
) -> None:
    machine, case = machine_of(file, element), kind(seed, element)
    dtype = ELEMENTS[element].dtype
    assert case.expected.dtype == dtype
    wanted, error = exact(case)
    unit, least = UNIT[element], LEAST[element]
    bound = error * (1 + unit) + unit * np.abs(wanted) + least
    found = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, found.schedule, machine, derive(machine))
    results = {
        "graph": case.expected,
        "words": lowered.run(),
        "tiles": run(lowered.tiles, case.operands, machine)[case.kernel.output.name],
    }
    for where, result in results.items():
        assert result.dtype == dtype, where
        assert (np.abs(result.astype(np.float64) - wanted) <= bound).all(), where
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete
    assert not report.races
    assert time_program(lowered.program, kernels).cycles >= found.granule_bound


def test_sums_of_16_bits_would_not_keep_the_bound() -> None:
    case = product(1, "float16")
    wanted, error = exact(case)
    x, w = (array.astype(np.float16) for array in case.operands.values())
    total = np.zeros(wanted.shape, np.float16)
    for k in range(x.shape[1]):
        total += np.outer(x[:, k], w[:, k]).astype(np.float16)
    beyond = np.abs(total.astype(np.float64) - wanted) > error * 1.001 + 2.0**-11 * np.abs(wanted)
    assert beyond.mean() > 0.25


def test_rounding_to_16_bits_is_to_the_nearest_of_two_the_even_one() -> None:
    element = ELEMENTS["float16"]
    low = np.arange(0, 0x7BFF, dtype=np.uint16).view(np.float16)
    high = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16)
    middle = (low.astype(np.float64) + high.astype(np.float64)) / 2
    even = np.where(low.view(np.uint16) % 2 == 0, low, high)
    np.testing.assert_array_equal(rounded(middle.astype(np.float32), element, saturate=False), even)
    above = np.nextafter(middle.astype(np.float32), np.float32(np.inf))
    np.testing.assert_array_equal(rounded(above, element, saturate=False), high)


@pytest.mark.parametrize("element", ELEMENT)
@pytest.mark.parametrize("overflow", ["infinity", "saturate"])
def test_results_beyond_the_largest_number(element: str, overflow: str) -> None:
    machine = machine_of(ONE, element, overflow=overflow)
    build = Floats(0, element)
    operands = [build.operand((1, 64)), build.operand((2, 64))]
    largest = float(ml_dtypes.finfo(ELEMENTS[element].dtype).max)
    # Sums stay finite in float32 and pass the largest number of 16 bits; those of bfloat16 do not.
    size = 3e3 if element == "float16" else largest**0.5 / 4
    for (kind, _), index in zip(list(build.arguments), range(2), strict=True):
        data = np.full((index + 1, 64), size)
        data[index] *= -1 if index else 1
        build.arguments[index] = (kind, data.astype(ELEMENTS[element].dtype))
    y = build.op("matmul", *operands, transpose_b=True)
    saturates: dict[str, Any] = {"saturate": True} if overflow == "saturate" else {}
    case = build.finish(build.op("cast", y, to=element, **saturates))
    lowered = lower_case(
        case, Planner(machine).plan(case.kernel).schedule, machine, derive(machine)
    )
    found = lowered.run().astype(np.float64)
    np.testing.assert_array_equal(found, case.expected.astype(np.float64))
    if element == "float16":
        limit = np.inf if overflow == "infinity" else largest
        np.testing.assert_array_equal(found, [[limit, -limit]])


def test_accumulators_that_no_machine_has_are_refused() -> None:
    with pytest.raises(TilewrightError, match="sums of float16 are float32"):
        load_machine(ONE).with_values({"element": "float16"})
    with pytest.raises(TilewrightError, match="is of floats of 16 bits"):
        load_machine(ONE).with_values({"overflow": "saturate"})


def test_targets_refuse_elements_that_they_do_not_compute_on() -> None:
    with pytest.raises(TilewrightError, match="machine-element"):
        find_target("cambricon").check_machine(machine_of(FIVE, "float16"))
