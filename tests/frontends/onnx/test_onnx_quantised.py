"""Quantised models compute in integers, within one unit of ONNX Runtime's results.

Compared with ONNX Runtime without its graph optimisations, where a quantised operator is a float
one between conversions, and with them, where it is one of its integer kernels.
"""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.executed import executed, typed_model
from tests.frontends.onnx.onnx_models import (
    assert_close,
    check,
    feeds_of,
    model_of,
    onnxruntime_of,
    single,
)
from tests.frontends.onnx.quantised_models import (
    Quantised,
    check_units,
    none_of,
    operations_in,
    prepared,
)
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

FLOATS = ("relu", "clip", "sigmoid", "average_pool", "add", "hard_swish")

KINDS: dict[str, tuple[Any, int, Any]] = {
    "unsigned": (np.uint8, 121, np.int8),
    "after relu": (np.uint8, 0, np.int8),
    "signed": (np.int8, -7, np.int8),
    "symmetric": (np.int8, 0, np.int8),
    "unsigned weights": (np.uint8, 130, np.uint8),
}
"""Activations, their zero point, weights."""


def weights(
    q: Quantised, kind: Any, shape: tuple[int, ...], axis: int = 0, per_channel: bool = True
) -> str:
    """Dequantised weights with a scale for each channel."""
    count = shape[axis] if per_channel else 1
    scale = np.linspace(0.001, 0.01, count, dtype=np.float32)
    zero = np.zeros(count, kind)
    if kind == np.uint8:
        zero += 117
    if not per_channel:
        return q.dequantise(q.constant(q.integers(kind, *shape), kind), scale[0], zero[0], kind)
    return q.dequantise(q.constant(q.integers(kind, *shape), kind), scale, zero, kind, axis=axis)


def biases(count: int) -> np.ndarray:
    """The scales of a bias: those of images (0.02) times those of the weights."""
    return np.float32(0.02) * np.linspace(0.001, 0.01, count, dtype=np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("channels", "group", "strides", "pads"),
    [(3, 1, 1, 1), (18, 1, 2, 1), (16, 16, 1, 1), (8, 2, 1, 0), (5, 1, 1, 2)],
)
def test_convolution(kind: str, channels: int, group: int, strides: int, pads: int) -> None:
    dtype, zero, weight = KINDS[kind]
    q = Quantised(channels * 7 + pads)
    x = q.through(q.input(2, channels, 9, 8), 0.02, zero, dtype)
    w = weights(q, weight, (16, channels // group, 3, 3), per_channel=weight == np.int8)
    count = 16 if weight == np.int8 else 1
    bias = q.constant(q.random.integers(-3000, 3000, 16), np.int32)
    b = q.dequantise(bias, biases(count).squeeze(), np.zeros(count).squeeze(), np.int32, axis=0)
    y = q.node(
        "Conv", x, w, b, pads=[pads] * 4, strides=[strides] * 2, group=group, kernel_shape=[3, 3]
    )
    y = q.quantise(q.node("Relu", y), 0.03, 3 if dtype == np.uint8 else -20, dtype)
    names = check_units(q.model(y), q.feeds())
    assert "requantise_linear" in names and none_of(names, *FLOATS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [2, 3])
def test_matrix_product(kind: str, rank: int) -> None:
    dtype, zero, weight = KINDS[kind]
    q = Quantised(rank)
    x = q.through(q.input(*(3, 5, 37)[3 - rank :]), 0.02, zero, dtype)
    y = q.node("MatMul", x, weights(q, weight, (37, 21), 1, weight == np.int8))
    y = q.quantise(y, 0.05, 9, dtype)
    names = check_units(q.model(y), q.feeds())
    assert "requantise_linear" in names and none_of(names, *FLOATS)


def test_gemm_with_a_bias_and_transposed_weights() -> None:
    q = Quantised(3)
    x = q.through(q.input(4, 30), 0.02, 100, np.uint8)
    bias = q.constant(q.integers(np.int16, 20), np.int32)
    bias = q.dequantise(bias, biases(20), np.zeros(20), np.int32, axis=0)
    y = q.node("Gemm", x, weights(q, np.int8, (20, 30)), bias, transB=1)
    names = check_units(q.model(q.quantise(y, 0.03, 128, np.uint8)), q.feeds())
    assert names.count("matmul") == 1 and none_of(names, *FLOATS)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_product_of_two_computed_matrices(dtype: Any) -> None:
    q = Quantised(5)
    x = q.through(q.input(2, 6, 40), 0.02, 3, dtype)
    y = q.through(q.input(2, 40, 7), 0.03, -9 if dtype == np.int8 else 90, dtype)
    result = q.quantise(q.node("MatMul", x, y), 0.11, 20, dtype)
    check_units(q.model(result), q.feeds())


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
def test_pairs(operator: str, dtype: Any) -> None:
    q = Quantised(6)
    x = q.through(q.input(2, 5, 7, 3), 0.02, 3, dtype)
    y = q.through(q.input(2, 5, 7, 3), 0.03, 50, dtype)
    result = q.quantise(q.node("Relu", q.node(operator, x, y)), 0.021, 20, dtype)
    names = check_units(q.model(result), q.feeds())
    assert none_of(names, *FLOATS, "sub")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "operator", ["Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Elu", "Exp", "Erf", "Relu"]
)
def test_functions_are_tables(operator: str, dtype: Any) -> None:
    q = Quantised(7)
    x = q.through(q.input(3, 50), 0.03, 8, dtype)
    result = q.quantise(q.node(operator, x), 0.011, 5, dtype)
    names = check_units(q.model(result), q.feeds(2.0))
    assert names == ["quantise_linear", "look_up"]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_an_activation_that_is_quantised_by_itself_narrows_the_limits(dtype: Any) -> None:
    q = Quantised(15)
    zero = 0 if dtype is np.int8 else 128
    x = q.through(q.input(1, 6, 8, 8), 0.02, zero, dtype)
    y = q.through(q.node("Conv", x, weights(q, np.int8, (8, 6, 3, 3))), 0.03, zero, dtype)
    z = q.through(q.node("Relu", y), 0.03, zero, dtype)
    end = q.quantise(q.node("Clip", z, q.constant(0.5), q.constant(2.0)), 0.03, zero, dtype)
    names = check_units(q.model(end), q.feeds())
    assert names == ["quantise_linear", "conv", "requantise_linear"]


def test_a_function_of_several_nodes_is_one_table() -> None:
    q = Quantised(8)
    x = q.through(q.input(3, 50), 0.03, 120, np.uint8)
    y = q.node("Mul", x, q.node("Sigmoid", q.node("Mul", x, q.constant(1.702))))
    names = check_units(q.model(q.quantise(y, 0.02, 10, np.uint8)), q.feeds())
    assert names == ["quantise_linear", "look_up"]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("same", [True, False])
def test_what_moves_elements_moves_integers(dtype: Any, same: bool) -> None:
    q = Quantised(9)
    scale, zero = (0.02, 11) if same else (0.024, 3)
    x = q.through(q.input(1, 4, 6, 6), 0.02, 11, dtype)
    moves = [
        q.node("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        q.node("Transpose", x, perm=[0, 2, 3, 1]),
        q.node("Reshape", x, q.constant([4, 36], np.int64)),
        q.node("Concat", x, x, axis=1),
        q.node("Pad", x, q.constant([0, 0, 1, 2, 0, 0, 0, 1], np.int64)),
        q.node("Slice", x, *(q.constant([v], np.int64) for v in (1, 4, 2))),
    ]
    results = [q.quantise(move, scale, zero, dtype) for move in moves]
    names = check_units(q.model(*results), q.feeds())
    assert none_of(names, "dequantise_linear")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("counted", [0, 1])
def test_means(dtype: Any, counted: int) -> None:
    q = Quantised(10)
    x = q.through(q.input(2, 6, 9, 9), 0.02, 11, dtype)
    pools = [
        q.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=counted),
        q.node("GlobalAveragePool", x),
        q.node("ReduceMean", x, axes=[2, 3], keepdims=0),
        q.node("ReduceMean", x, axes=[1], keepdims=1),
    ]
    results = [q.quantise(pool, 0.005, 30, dtype) for pool in pools]
    names = check_units(q.model(*results), q.feeds())
    assert none_of(names, "dequantise_linear", "average_pool", "reduce_mean")


def test_a_product_that_stays_a_float_is_dequantised_from_its_sums() -> None:
    q = Quantised(11)
    x = q.through(q.input(4, 30), 0.02, 100, np.uint8)
    bias = q.constant(q.random.standard_normal(20))
    y = q.node("Gemm", x, weights(q, np.int8, (20, 30)), bias, transB=1)
    z = q.quantise(q.node("Softmax", y, axis=1), 1 / 255, 0, np.uint8)
    names = check_units(q.model(z), q.feeds())
    assert names[:3] == ["quantise_linear", "matmul", "dequantise_linear"]


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, -0.5])
def test_scales_that_say_nothing_leave_floats(scale: float) -> None:
    q = Quantised(16)
    x = q.through(q.input(1, 3, 6, 6), 0.02, 5, np.uint8)
    w = q.dequantise(q.constant(q.integers(np.int8, 4, 3, 3, 3), np.int8), scale, 0, np.int8)
    y = q.quantise(q.node("Sigmoid", q.node("Conv", x, w)), 0.01, 3, np.uint8)
    module, _ = prepared(import_onnx(q.model(y)))
    names = operations_in(module)
    assert "conv" in names and none_of(names, "requantise_linear", "look_up")


def test_a_view_lets_integers_through() -> None:
    q = Quantised(17)
    x = q.through(q.input(2, 3, 2, 4), 0.02, 5, np.uint8)
    flat = q.node("Flatten", x)
    y = q.node("MatMul", flat, weights(q, np.int8, (24, 9), 1))
    names = check_units(q.model(q.quantise(y, 0.05, 9, np.uint8)), q.feeds())
    assert none_of(names, "dequantise_linear") and "requantise_linear" in names


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_convolution_and_product(dtype: Any) -> None:
    q = Quantised(13)
    x = q.input(1, 6, 7, 7, dtype=dtype)
    w = q.constant(q.integers(np.int8, 10, 6, 3, 3), np.int8)
    scale = q.constant(q.random.uniform(0.001, 0.01, 10))
    y = q.node(
        "QLinearConv",
        *(x, q.constant(0.02), q.constant(12, dtype)),
        *(w, scale, q.constant(np.zeros(10), np.int8)),
        *(q.constant(0.05), q.constant(40, dtype)),
        q.constant(q.integers(np.int16, 10), np.int32),
        pads=[1, 1, 1, 1],
    )
    a = q.input(5, 24, dtype=dtype)
    z = q.node(
        "QLinearMatMul",
        *(a, q.constant(0.02), q.constant(100, dtype)),
        *(q.constant(q.integers(np.int8, 24, 9), np.int8), q.constant(0.01)),
        *(q.constant(0, np.int8), q.constant(0.07), q.constant(20, dtype)),
    )
    names = check_units(q.model(y, z), q.feeds())
    assert names.count("requantise_linear") == 2 and none_of(names, *FLOATS)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 7])
def test_products_in_int32_are_exact(dtype: Any, zero: int) -> None:
    q = Quantised(14)
    a, x = q.input(5, 24, dtype=dtype), q.input(1, 3, 6, 6, dtype=dtype)
    origin = q.constant(zero, dtype)
    y = q.node("MatMulInteger", a, q.constant(q.integers(np.int8, 24, 9), np.int8), origin)
    w = q.constant(q.integers(np.uint8 if dtype == np.uint8 else np.int8, 4, 3, 3, 3), dtype)
    z = q.node("ConvInteger", x, w, origin, pads=[1, 1, 1, 1])
    check_units(q.model(*((y, z) if dtype == np.uint8 else (y,))), q.feeds(), units=0, share=0)


@pytest.mark.parametrize(
    ("left", "right"), [((24,), (24, 9)), ((5, 24), (24,)), ((24,), (2, 24, 9))]
)
@pytest.mark.parametrize("constant", [True, False])
def test_vectors_are_rows_or_columns(
    left: tuple[int, ...], right: tuple[int, ...], constant: bool
) -> None:
    q = Quantised(15)
    a = q.input(*left, dtype=np.uint8)
    b = (
        q.constant(q.integers(np.uint8, *right), np.uint8)
        if constant
        else q.input(*right, dtype=np.uint8)
    )
    zeros = q.constant(100, np.uint8), q.constant(117, np.uint8)
    y = q.node(
        "QLinearMatMul",
        *(a, q.constant(0.02), zeros[0], b, q.constant(0.01), zeros[1]),
        *(q.constant(0.9), q.constant(120, np.uint8)),
    )
    check_units(q.model(y), q.feeds())
    exact = Quantised(16)
    a, zero = exact.input(*left, dtype=np.uint8), exact.constant(100, np.uint8)
    b = exact.constant(exact.integers(np.uint8, *right), np.uint8)
    z = exact.node("MatMulInteger", a, b, zero, exact.constant(7, np.uint8))
    check_units(exact.model(z), exact.feeds(), units=0, share=0)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize(
    ("shape", "axis", "block"),
    [((3, 8), 1, 2), ((6, 5, 4), 0, 3), ((2, 7, 3), -2, 3), ((2, 3, 10), 2, 16), ((4, 6), 1, 1)],
)
def test_blocks_have_scales_and_zero_points_of_their_own(
    shape: tuple[int, ...], axis: int, block: int, dtype: Any
) -> None:
    """There and back again; the last block may be short, or the only one."""
    random, places = np.random.default_rng(block), list(shape)
    places[axis] = -(-shape[axis] // block)
    settings = {"axis": axis, "block_size": block}
    constants = {
        "scale": random.uniform(0.01, 0.1, places).astype(np.float32),
        "zero": random.integers(0, 50, places).astype(dtype),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **settings),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **settings),
    ]
    check(model_of(nodes, {"x": shape}, ["y"], constants, opset=21, ir_version=10))


@pytest.mark.parametrize("axis", [0, 1])
def test_products_of_weights_of_blocks(axis: int) -> None:
    """Their scales differ within a channel, or from channel to channel alone in blocks of it."""
    q = Quantised()
    places = [12, 10]
    places[axis] = -(-places[axis] // 4)
    constants = {
        "x_scale": np.float32(0.02),
        "x_zero": np.uint8(120),
        "w": q.integers(np.int8, 12, 10),
        "w_scale": q.random.uniform(0.001, 0.1, places).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "x_scale", "x_zero"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale"], ["wd"], axis=axis, block_size=4),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    model = model_of(nodes, {"x": (5, 12)}, ["y"], constants, opset=21, ir_version=10)
    feeds = feeds_of(model)
    module, context = prepared(import_onnx(model))
    got = interpret(module, context.weights, dict(feeds))["y"]
    assert_close(got, onnxruntime_of(model, feeds)["y"])


def test_scales_that_do_not_fit_blocks_are_refused() -> None:
    operands = [(3, 8), np.full((3, 3), 0.1, np.float32)]
    model = single("QuantizeLinear", operands, opset=21, axis=1, block_size=2)
    with pytest.raises(TilewrightError, match=r"onnx-shape.*one number for each block of 2"):
        import_onnx(model)


@pytest.mark.parametrize("group", [1, 16])
def test_a_float_bias_is_added_as_it_is(group: int) -> None:
    """A bias that is not of whole units is not rounded to them: results stay the nearest ones."""
    values = np.random.default_rng(group)
    x = values.integers(0, 256, (1, 16, 64, 64)).astype(np.uint8)
    w = values.integers(-127, 128, (16, 16 // group, 3, 3)).astype(np.int8)
    sizes = np.float32([0.0235, 0.03 if group > 1 else 0.1])
    scales = np.linspace(0.002, 0.011, 16, dtype=np.float32)
    bias = values.standard_normal(16).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["f"], axis=0),
        helper.make_node("Conv", ["a", "f", "b"], ["c"], group=group),
        helper.make_node("QuantizeLinear", ["c", "sy", "zy"], ["y"]),
    ]
    constants = {
        "sx": sizes[0],
        "sy": sizes[1],
        "sw": scales,
        "w": w,
        "b": bias,
        "zx": np.uint8(120),
        "zy": np.uint8(128),
        "zw": np.zeros(16, np.int8),
    }
    model = typed_model(nodes, {"x": x}, {"y": TensorProto.UINT8}, constants, opset=17)
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.int64) - 120, (3, 3), (1, 2))
    sums = np.stack(
        [
            np.einsum(
                "chwij,cij->hw", windows[k * group // 16 * (16 // group) :][: 16 // group], w[k]
            )
            for k in range(16)
        ]
    )
    unit = (sizes[0].astype(np.float64) * scales)[:, None, None]
    wide = bias.astype(np.float64)[:, None, None]

    def nearest(value: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(value / np.float64(sizes[1])) + 128, 0, 255).astype(np.uint8)

    want, rounded = nearest(sums * unit + wide), nearest((sums + np.rint(wide / unit)) * unit)
    assert (want != rounded).sum() > 5, "a bias of whole units does as well"
    found = executed(model, {"x": x})["y"][0]
    assert (found != want).sum() <= 1
