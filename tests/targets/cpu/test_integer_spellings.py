"""Every way in which ONNX says an integer product takes the kernels of bytes, and is exact."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.frontends.onnx.quantised_models import Quantised, prepared

import tilewright
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.graph.passes.multiply_bytes import MultiplyBytes
from tilewright.ir import i8
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import UNSIGNED, tensor_type
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import PROCESSORS

MICROSOFT = {"domain": "com.microsoft"}
BYTES = (np.uint8, np.int8)


def exact_convolution(
    x: np.ndarray, w: np.ndarray, strides: int, pads: list[int], dilations: int, group: int
) -> np.ndarray:
    """Integers, tap by tap."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    n, _, height, width = x.shape
    co, ci, kh, kw = w.shape
    oh, ow = (
        (extent - dilations * (taps - 1) - 1) // strides + 1
        for extent, taps in ((height, kh), (width, kw))
    )
    images = x.reshape(n, group, ci, height, width)
    weights = w.astype(np.int64).reshape(group, co // group, ci, kh, kw)
    total = np.zeros((n, group, co // group, oh, ow), np.int64)
    for i in range(kh):
        for j in range(kw):
            rows, columns = (slice(k * dilations, None, strides) for k in (i, j))
            part = images[..., rows, columns][..., :oh, :ow]
            total += np.einsum("ngchw,gkc->ngkhw", part, weights[..., i, j])
    return total.reshape(n, co, oh, ow)


def random_convolutions(seed: int, count: int = 8) -> tuple[Quantised, dict[str, Any], list[Any]]:
    """A network of ConvIntegers, some with a bias in int32; its feeds, and (output, array)."""
    draw, q = random.Random(seed), Quantised(seed)
    feeds: dict[str, Any] = {}
    wanted: list[Any] = []

    def operand(array: np.ndarray, fed: bool) -> str:
        if not fed:
            return q.constant(array, array.dtype)
        name = q.input(*array.shape, dtype=array.dtype)
        feeds[name] = array
        return name

    for number in range(count):
        group = draw.choice((1, 1, 2, 6))
        ci, co = draw.choice((1, 3, 8)), group * draw.choice((1, 4, 11))
        taps, strides, dilations = draw.choice((1, 2, 3)), draw.choice((1, 2)), draw.choice((1, 2))
        pads = [draw.randint(0, 2) for _ in range(4)]
        image, weight = draw.choice(BYTES), draw.choice(BYTES)
        x = q.integers(image, draw.choice((1, 2)), ci * group, 9, 7)
        w = q.integers(weight, co, ci, taps, taps)
        x_zero, w_zero = q.integers(image), q.integers(weight)
        if draw.random() < 0.3:
            w_zero = q.integers(weight, co)
        kept = ("xw", "x", "w", "")[number % 4]
        inputs = [operand(x, True), operand(w, draw.random() < 0.15)]
        inputs.append(operand(x_zero, draw.random() < 0.6) if "x" in kept else "")
        inputs.append(operand(w_zero, draw.random() < 0.2) if "w" in kept else "")
        y = q.node(
            *("ConvInteger", *inputs),
            group=group,
            pads=pads,
            strides=[strides] * 2,
            dilations=[dilations] * 2,
        )
        centred, weights = (array.astype(np.int64) for array in (x, w))
        if "x" in kept:
            centred -= int(x_zero)
        if "w" in kept:
            weights -= w_zero.astype(np.int64).reshape(-1, 1, 1, 1)
        exact = exact_convolution(centred, weights, strides, pads, dilations, group)
        if draw.random() < 0.5:
            bias = q.integers(np.int32, 1, co, 1, 1)
            y = q.node("Add", operand(bias, draw.random() < 0.5), y)
            exact = exact + bias
        wanted.append((y, exact.astype(np.int32)))
    return q, feeds, wanted


@pytest.mark.parametrize("seed", range(6))
def test_random_convolutions_are_exact_in_bytes(seed: int) -> None:
    """The pass alone, interpreted: quick, so that many are tried."""
    q, feeds, wanted = random_convolutions(seed)
    imported = import_onnx(q.model(*(name for name, _ in wanted)))
    weights = imported.weights.subset(imported.weights)
    context = CompilerContext(machine(PROCESSORS["avx2"]), weights, {})
    MultiplyBytes().apply(context, imported.module)
    imported.module.verify()
    outputs = interpret(imported.module, weights, feeds)
    for name, array in wanted:
        np.testing.assert_array_equal(outputs[name], array)


@pytest.mark.parametrize(
    ("seed", "count"), [(6, 2), *(pytest.param(n, 8, marks=pytest.mark.slow) for n in (6, 7))]
)
def test_random_convolutions_run_exactly(seed: int, count: int) -> None:
    q, feeds, wanted = random_convolutions(seed, count)
    executable = tilewright.compile(import_onnx(q.model(*(name for name, _ in wanted))))
    outputs = executable.run(feeds)
    for name, array in wanted:
        np.testing.assert_array_equal(outputs[name], array)


def _dynamic(q: Quantised, value: str) -> tuple[str, str, str]:
    """DynamicQuantizeLinear's integers, scale and zero point."""
    names = q.fresh("integers"), q.fresh("scale"), q.fresh("zero")
    q.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [value], list(names)))
    return names


def _convolution(q: Quantised, kind: Any, zero: int, *, bias: bool = True) -> str:
    """As onnxruntime's quantize_dynamic writes a convolution."""
    x, scale, origin = _dynamic(q, q.input(1, 18, 9, 8))
    w = q.constant(q.integers(kind, 20, 18, 3, 3), kind)
    y = q.node("ConvInteger", x, w, origin, q.constant(zero, kind), pads=[1] * 4)
    y = q.node("Cast", y, to=onnx.TensorProto.FLOAT)
    y = q.node("Mul", y, q.node("Mul", scale, q.constant(0.01)))
    added = q.constant(q.random.standard_normal((1, 20, 1, 1)))
    return q.node("Relu", q.node("Add", y, added)) if bias else y


def _product(q: Quantised, kind: Any, zero: Any) -> str:
    """As it writes a matrix product; weights may have a zero point for each column."""
    x, scale, origin = _dynamic(q, q.input(3, 5, 37))
    y = q.node(
        "MatMulInteger",
        *(x, q.constant(q.integers(kind, 37, 21), kind), origin, q.constant(zero, kind)),
    )
    y = q.node("Cast", y, to=onnx.TensorProto.FLOAT)
    return q.node("Mul", y, q.node("Mul", scale, q.constant(q.random.random(21) * 0.02)))


def _computed_product(q: Quantised) -> str:
    """Of two computed matrices, with a row added in int32."""
    (x, first, origin), (w, second, other) = (
        _dynamic(q, q.input(*shape)) for shape in ((2, 5, 40), (2, 40, 24))
    )
    y = q.node("MatMulInteger", x, w, origin, other)
    y = q.node("Add", y, q.constant(q.integers(np.int16, 24), np.int32))
    y = q.node("Cast", y, to=onnx.TensorProto.FLOAT)
    return q.node("Mul", y, q.node("Mul", first, second))


def _pairs(q: Quantised, *, group: int = 1) -> str:
    """Dynamic scales, as floats between conversions."""
    x, scale, origin = _dynamic(q, q.input(1, 16, 9, 8))
    x = q.node("DequantizeLinear", x, scale, origin)
    w = q.constant(q.integers(np.int8, 24, 16 // group, 3, 3), np.int8)
    scales, zeros = q.random.uniform(0.001, 0.01, 24), np.zeros(24)
    w = q.node(
        *("DequantizeLinear", w, q.constant(scales), q.constant(zeros, np.int8)),
        axis=0,
    )
    bias = q.constant(q.random.standard_normal(24))
    return q.node("Conv", x, w, bias, pads=[1] * 4, strides=[2, 2], group=group)


def _gemm_of_pairs(q: Quantised) -> str:
    """The same of a product whose weights lie transposed."""
    x, scale, origin = _dynamic(q, q.input(7, 30))
    x = q.node("DequantizeLinear", x, scale, origin)
    w = q.dequantise(q.constant(q.integers(np.uint8, 20, 30), np.uint8), 0.01, 130, np.uint8)
    return q.node("Gemm", x, w, q.constant(q.random.standard_normal(20)), transB=1)


def _to_float(q: Quantised) -> str:
    x, scale, origin = _dynamic(q, q.input(3, 37))
    w, per_column = q.constant(q.integers(np.int8, 37, 21), np.int8), q.random.random(21) * 0.02
    inputs = [x, w, scale, q.constant(per_column), origin, q.constant(np.zeros(21), np.int8)]
    bias = q.constant(q.random.standard_normal(21))
    return q.node("MatMulIntegerToFloat", *inputs, bias, **MICROSOFT)


def _dynamic_product(q: Quantised) -> str:
    x, w = q.input(3, 37), q.constant(q.integers(np.uint8, 37, 21), np.uint8)
    return q.node(
        "DynamicQuantizeMatMul", x, w, q.constant(0.01), q.constant(140, np.uint8), **MICROSOFT
    )


def _qlinear_convolution(q: Quantised, kind: Any = np.int8) -> str:
    x = q.input(1, 12, 7, 7, dtype=np.uint8)
    w = q.constant(q.integers(kind, 10, 12, 3, 3), kind)
    return q.node(
        "QLinearConv",
        *(x, q.constant(0.02), q.constant(12, np.uint8), w),
        *(q.constant(0.004), q.constant(0 if kind == np.int8 else 121, kind)),
        *(q.constant(0.09), q.constant(120, np.uint8)),
        q.constant(q.integers(np.int16, 10), np.int32),
        pads=[1, 1, 1, 1],
    )


def _qlinear_product(q: Quantised) -> str:
    x, w = q.input(5, 24, dtype=np.uint8), q.constant(q.integers(np.int8, 24, 9), np.int8)
    return q.node(
        "QLinearMatMul",
        *(x, q.constant(0.02), q.constant(100, np.uint8), w, q.constant(0.01)),
        *(q.constant(0, np.int8), q.constant(0.6), q.constant(120, np.uint8)),
    )


def _qgemm(q: Quantised) -> str:
    x, w = q.input(5, 24, dtype=np.uint8), q.constant(q.integers(np.int8, 9, 24), np.int8)
    return q.node(
        "QGemm",
        *(x, q.constant(0.02), q.constant(100, np.uint8), w, q.constant(0.01)),
        *(q.constant(0, np.int8), q.constant(q.integers(np.int16, 9), np.int32)),
        *(q.constant(0.6), q.constant(120, np.uint8)),
        transB=1,
        **MICROSOFT,
    )


def _static_pairs(q: Quantised) -> str:
    x = q.through(q.input(1, 16, 9, 8), 0.02, 120, np.uint8)
    w = q.dequantise(q.constant(q.integers(np.int8, 20, 16, 3, 3), np.int8), 0.01, 0, np.int8)
    return q.quantise(q.node("Conv", x, w, pads=[1] * 4), 0.1, 128, np.uint8)


SPELLINGS: dict[str, Callable[[Quantised], str]] = {
    "ConvInteger, uint8": lambda q: _convolution(q, np.uint8, 130),
    "ConvInteger, uint8 about 128": lambda q: _convolution(q, np.uint8, 128),
    "ConvInteger, no bias": lambda q: _convolution(q, np.uint8, 3, bias=False),
    "MatMulInteger, int8": lambda q: _product(q, np.int8, 0),
    "MatMulInteger, columns": lambda q: _product(q, np.uint8, q.integers(np.uint8, 21)),
    "MatMulInteger, computed": _computed_product,
    "pairs": _pairs,
    "pairs, groups": lambda q: _pairs(q, group=2),
    "pairs, Gemm": _gemm_of_pairs,
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic_product,
    "QLinearConv": _qlinear_convolution,
    "QLinearConv, uint8": lambda q: _qlinear_convolution(q, np.uint8),
    "QLinearMatMul": _qlinear_product,
    "QGemm": _qgemm,
    "static pairs": _static_pairs,
}


@pytest.fixture(scope="module")
def spelled() -> tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, str]]:
    """One network of all spellings, its feeds, and the outputs by spelling."""
    q = Quantised(3)
    outputs = {name: build(q) for name, build in SPELLINGS.items()}
    model = q.model(*outputs.values())
    return model, q.feeds(), outputs


Spelled = tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, str]]


def test_every_spelling_becomes_products_of_bytes(spelled: Spelled) -> None:
    """Interpreted, so that the graph is what is compared."""
    model, feeds, outputs = spelled
    module, context = prepared(import_onnx(model))
    products = [op for op in module.walk() if op.name in ("graph.conv", "graph.matmul")]
    assert len(products) >= len(outputs)
    for op in products:
        kinds = [tensor_type(value).element_type for value in op.operands[:2]]
        assert kinds == [UNSIGNED[8], i8]
    check(outputs, interpret(module, context.weights, feeds), onnxruntime_of(model, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["avx512", "amx", "avx2", "sse2", "neon", "portable"])
def test_every_spelling_takes_the_kernels_of_bytes(spelled: Spelled, cpu: str) -> None:
    model, _, outputs = spelled
    executable = tilewright.compile(import_onnx(model), cpu=cpu)
    products = [
        kernel.schedule for kernel in executable.manifest.kernels if "ci=" in kernel.schedule
    ]
    assert len(products) >= len(outputs)
    assert not [text for text in products if not text.split()[0].endswith("_8")]


@pytest.mark.slow
def test_every_spelling_is_onnx_runtimes(spelled: Spelled) -> None:
    model, feeds, outputs = spelled
    got = tilewright.compile(import_onnx(model)).run(feeds)
    check(outputs, got, onnxruntime_of(model, feeds))


def check(outputs: dict[str, str], got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """Floats within roundings of each other; of two integers that are equally near, either."""
    for spelling, name in outputs.items():
        assert np.unique(want[name]).size > 20, spelling
        if want[name].dtype == np.uint8:
            apart = np.abs(got[name].astype(np.int64) - want[name].astype(np.int64))
            assert apart.max() <= 1 and np.mean(apart > 0) < 0.01, spelling
        else:
            scale = np.abs(want[name]).max()
            np.testing.assert_allclose(got[name], want[name], atol=2e-6 * scale, err_msg=spelling)
