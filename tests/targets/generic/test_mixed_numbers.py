"""A machine of two number formats: int8 products, float32 vectors, and what goes between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erf
from tests.targets.generic.kernel_cases import Case, lower_case
from tests.targets.generic.test_real_scales import Integers
from tests.tile.interpreter import run

from tilewright.errors import TilewrightError
from tilewright.graph.operations import BY_NAME
from tilewright.ir import Block, SSAValue, VerifyException, f32, i8, i32
from tilewright.ir.types import Array, tensor
from tilewright.machine.load import load_machine
from tilewright.machine.numbers import integers_of, is_mixed, seen_by
from tilewright.planning import Planner
from tilewright.targets.base import find_target
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timing import check_races, time_program

MACHINES = Path(__file__).parents[3] / "examples" / "machines"
FILE = MACHINES / "mixed.toml"
MACHINE = load_machine(FILE)
INSTRUCTIONS = derive(MACHINE)


class Mixed(Integers):
    """Kernels of int8, of float32, and between them."""

    def floats(self, *shape: int) -> SSAValue:
        layout = "NHWC" if len(shape) == 4 else ""
        return self.given(self.random.normal(0, 2, shape).astype(np.float32), f32, layout)

    def scales(self, *shape: int) -> SSAValue:
        layout = "NHWC" if len(shape) == 4 else ""
        spread = self.random.uniform(0.001, 0.1, shape).astype(np.float32)
        return self.given(spread, f32, layout)

    def quantised(self, value: SSAValue) -> SSAValue:
        scale = float(np.float32(self.random.uniform(0.01, 0.06)))
        zero = int(self.random.integers(-20, 20))
        return self.op("quantise_linear", value, scale=scale, zero=zero, to="int8")


def dequantised_product(seed: int) -> Case:
    build = Mixed(seed)
    rows, depth, columns = (int(v) for v in build.random.integers(1, (40, 900, 200)))
    operands = [build.bytes(rows, depth), build.bytes(columns, depth), build.bias(columns)]
    y = build.op("matmul", *operands, transpose_b=True)
    spread = (1, 1) if seed % 2 else (1, columns)
    return build.finish(build.op("dequantise_linear", y, build.scales(*spread), zero=0))


def dequantised_convolution(seed: int) -> Case:
    build = Mixed(seed)
    ci, co = (int(v) for v in build.random.integers(1, 60, 2))
    y = build.op("conv", build.bytes(1, ci, 12, 9), build.bytes(co, ci, 3, 3), pads=(1,) * 4)
    return build.finish(build.op("dequantise_linear", y, build.scales(1, co, 1, 1), zero=0))


def requantised_convolution(seed: int) -> Case:
    build = Mixed(seed)
    ci, co = (int(v) for v in build.random.integers(1, 60, 2))
    w = build.bytes(co, ci, 3, 3, layout="OHWI")
    y = build.op("conv", build.bytes(1, ci, 12, 9), w, pads=(1,) * 4)
    return build.finish(build.requantised(y, (1, co, 1, 1), 9 * ci))


def computed_product(seed: int) -> Case:
    """Attention's scores: two matrices of int8, sums of int32 dequantised."""
    build = Mixed(seed)
    heads, rows, width = 2, int(build.random.integers(5, 40)), 24
    y = build.op("matmul", build.bytes(heads, rows, width), build.bytes(heads, width, rows))
    return build.finish(build.op("dequantise_linear", y, build.scales(1, 1, 1), zero=0))


def dequantised_bytes(seed: int) -> Case:
    build = Mixed(seed)
    x = build.bytes(1, int(build.random.integers(1, 40)), 9, 12)
    zero = int(build.random.integers(-30, 30))
    return build.finish(build.op("dequantise_linear", x, build.scales(1, 1, 1, 1), zero=zero))


def dequantised_sums(seed: int) -> Case:
    build = Mixed(seed)
    x = build.given(build.random.integers(-(2**20), 2**20, (30, 70)).astype(np.int32), i32)
    return build.finish(build.op("dequantise_linear", x, build.scales(1, 70), zero=0))


def quantised_floats(seed: int) -> Case:
    build = Mixed(seed)
    return build.finish(build.quantised(build.floats(1, 30, 7, int(3 + seed))))


def quantised_sum(seed: int) -> Case:
    build = Mixed(seed)
    x, y = build.floats(1, 30, 7, 9), build.floats(1, 30, 7, 9)
    return build.finish(build.quantised(build.op("relu", build.op("add", x, y))))


def quantised_softmax(seed: int) -> Case:
    build = Mixed(seed)
    x = build.floats(2, 30, int(build.random.integers(10, 70)))
    y = build.op("softmax", x, axis=-1)
    return build.finish(build.op("quantise_linear", y, scale=1 / 255, zero=-128, to="int8"))


def quantised_norm(seed: int) -> Case:
    build = Mixed(seed)
    width = int(build.random.integers(20, 90))
    y = build.op("layer_norm", build.floats(3, 11, width), build.floats(width), build.floats(width))
    return build.finish(build.quantised(y))


def float_product(seed: int) -> Case:
    build = Mixed(seed)
    operands = [build.floats(9, 80), build.floats(50, 80), build.floats(50)]
    return build.finish(build.op("relu", build.op("matmul", *operands, transpose_b=True)))


KINDS = (
    *(dequantised_product, dequantised_convolution, requantised_convolution, computed_product),
    *(dequantised_bytes, dequantised_sums, quantised_floats, quantised_sum),
    *(quantised_softmax, quantised_norm),
)


@pytest.mark.few(10)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_words_and_tiles_compute_what_the_graph_means(
    kind: Callable[[int], Case], seed: int
) -> None:
    """Every step between integers and floats is one IEEE operation: bit for bit."""
    case = kind(seed)
    assert len(np.unique(case.expected)) > 10
    chosen = Planner(MACHINE).plan(case.kernel)
    lowered = lower_case(case, chosen.schedule, MACHINE, INSTRUCTIONS)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    tiles = run(lowered.tiles, case.operands, MACHINE)[case.kernel.output.name]
    np.testing.assert_array_equal(tiles, case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete and not report.races and not report.unwritten
    cycles = time_program(lowered.program, kernels).cycles
    assert cycles >= chosen.granule_bound
    assert 0.88 < chosen.predicted_cycles / cycles < 1.12


def softmax64(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


FLOATS: dict[str, tuple[tuple[int, ...], dict[str, Any], Callable[[Array], Array]]] = {
    "softmax": ((4, 60, 90), {"axis": -1}, softmax64),
    "layer_norm": (
        (4, 60, 90),
        {},
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "gelu": ((40, 70), {}, lambda x: x * (1 + erf(x / np.sqrt(2))) / 2),
    "tanh": ((40, 70), {}, np.tanh),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_within_the_bound_of_float64(name: str) -> None:
    """Of n terms in float32, in any order: n units of their magnitudes, and a few per function."""
    shape, attributes, exact = FLOATS[name]
    build = Mixed(7)
    x = build.floats(*shape)
    operands = [x]
    if name == "layer_norm":
        ones = np.ones(shape[-1], np.float32)
        operands += [build.given(ones, f32), build.given(ones * 0, f32)]
    case = build.finish(build.op(name, *operands, **attributes))
    lowered = lower_case(case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE, INSTRUCTIONS)
    result = lowered.run()
    assert result.dtype == np.float32
    values = build.arguments[0][1].astype(np.float64)
    wanted = exact(values)
    terms = shape[-1] if name in ("softmax", "layer_norm") else 8
    bound = (terms + 8) * 2.0**-23 * np.maximum(np.abs(wanted), np.abs(wanted).max())
    assert np.all(np.abs(result - wanted) <= bound)


def test_products_of_floats_beside_those_of_integers() -> None:
    case = float_product(3)
    chosen = Planner(MACHINE).plan(case.kernel)
    assert chosen.schedule.primitive == "float-products"
    lowered = lower_case(case, chosen.schedule, MACHINE, INSTRUCTIONS)
    x, w, bias = (array.astype(np.float64) for array in case.operands.values())
    exact = np.maximum(x @ w.T + bias, 0)
    bound = 81 * 2.0**-24 * (np.abs(x) @ np.abs(w).T + np.abs(bias)) + 2.0**-23 * np.abs(exact)
    assert np.all(np.abs(lowered.run() - exact) <= bound)
    assert Planner(MACHINE).plan(dequantised_product(1).kernel).schedule.primitive == "matmul"


def test_numbers_are_those_of_the_primitive() -> None:
    assert is_mixed(MACHINE) and not is_mixed(load_machine(MACHINES / "systolic-int8.toml"))
    integers = integers_of(MACHINE)
    assert integers is not None and integers.name == "int8"
    products = seen_by(MACHINE, MACHINE.primitive("matmul"))
    assert (products.element, products.accumulator) == ("int8", "int32")
    assert seen_by(MACHINE, MACHINE.primitive("softmax")).number.is_plain
    assert integers_of(load_machine(MACHINES / "small-npu.toml")) is None


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            'element = "int8"\noperations',
            'element = "int4"\noperations',
            "primitive.matmul.element",
        ),
        (
            'element = "float32"\naccumulator = "float32"',
            'element = "fixed16"\naccumulator = "fixed32"',
            "beside floats",
        ),
        ('element = "int8"\noperations', 'elements = "int8"\noperations', "unknown key"),
    ],
)
def test_what_is_wrong_in_a_machine_file(before: str, after: str, reason: str) -> None:
    text = FILE.read_text()
    assert before in text
    with pytest.raises(TilewrightError, match=reason):
        load_machine(text.replace(before, after, 1))


def test_other_targets_refuse_numbers_of_primitives() -> None:
    assert "primitive.element" in {str(key) for key in find_target("generic").implements}
    assert "primitive.element" not in {str(key) for key in find_target("cpu").implements}


def test_scales_are_operands_or_attributes() -> None:
    x, scale, zero = (tensor((3,), f32), tensor((), f32), tensor((), i8))
    block = Block(arg_types=[x, scale, zero])
    operation = BY_NAME["quantise_linear"].build_from(
        [block.args[0]], {"scale": 0.5, "zero": 3, "to": "int8"}, node="n"
    )
    operation.verify()
    got = operation.evaluate(np.array([1.0, 1.25, np.nan], np.float32))
    assert got.dtype == np.int8 and got.tolist() == [5, 5, -128]
    for operands, attributes, reason in (
        (block.args, {"scale": 0.5, "zero": 3, "to": "int8"}, "operands or attributes"),
        (block.args[:1], {"scale": -1.0, "zero": 3, "to": "int8"}, "above 0"),
        (block.args[:1], {"scale": 0.5, "zero": 3, "to": "float32"}, "gives"),
        (block.args[:2], {}, "operands or attributes"),
    ):
        with pytest.raises(VerifyException, match=reason):
            BY_NAME["quantise_linear"].build_from(list(operands), dict(attributes), node="n")
