"""ONNX Runtime's own operators give its results."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.frontends.onnx.quantised_models import Quantised, check_units, prepared
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.frontends.onnx.microsoft import CONTRIBUTED
from tilewright.graph.interpreter import interpret

DOMAIN = "com.microsoft"


def model_of(
    operator: str,
    operands: list[np.ndarray | None],
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    domain: str = DOMAIN,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and its inputs; operands named by ``constants`` are stored."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(operands)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(operator, names, results, "the_node", domain=domain, **attributes)
    given = {name: array for name, array in zip(names, operands, strict=True) if array is not None}
    stored = {names[index] for index in constants if operands[index] is not None}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in given.items()
            if name not in stored
        ],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(given[name], name) for name in sorted(stored)],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, {name: array for name, array in given.items() if name not in stored}


def check(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], tolerance: float = 2e-5) -> None:
    """Compare every output of the interpreter with ONNX Runtime's."""
    imported = import_onnx(model)
    got = interpret(imported.module, imported.weights, dict(feeds))
    for name, want in onnxruntime_of(model, feeds).items():
        assert got[name].shape == want.shape and got[name].dtype == want.dtype, name
        scale = max(float(np.abs(want).max(initial=0.0)), 1e-6)
        np.testing.assert_allclose(got[name], want, rtol=tolerance, atol=tolerance * scale)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("activation", "numbers"),
    [
        ("Relu", []),
        ("Tanh", []),
        ("Sigmoid", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.3, 0.7]),
        ("HardSigmoid", [0.3, 0.4]),
    ],
)
def test_fused_convolution(activation: str, numbers: list[float]) -> None:
    operands = [noise(1, 4, 7, 7), noise(6, 4, 3, 3), noise(6), noise(1, 6, 7, 7)]
    if activation != "Relu":
        del operands[3]
    kwargs: dict[str, Any] = {"activation_params": numbers} if numbers else {}
    check(*model_of("FusedConv", operands, activation=activation, pads=[1] * 4, **kwargs))


@pytest.mark.parametrize(
    ("name", "value"),
    [("pads", ["a", "b", "c", "d"]), ("pads", [0.9] * 4), ("activation_params", ["abc"])],
)
def test_attributes_of_another_type_are_refused(name: str, value: list[Any]) -> None:
    operands = [noise(1, 4, 7, 7), noise(6, 4, 3, 3)]
    attributes: dict[str, Any] = {"activation": "LeakyRelu", "activation_params": [0.1]}
    model, _ = model_of("FusedConv", operands, **attributes | {name: value})
    with pytest.raises(TilewrightError, match="of the wrong type"):
        import_onnx(model)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu"])
def test_fused_gemm(activation: str) -> None:
    kwargs: dict[str, Any] = {"activation_alpha": 0.2} if activation == "LeakyRelu" else {}
    check(
        *model_of(
            "FusedGemm",
            [noise(5, 7), noise(9, 7), noise(9)],
            activation=activation,
            transB=1,
            alpha=0.5,
            beta=2.0,
            **kwargs,
        )
    )


@pytest.mark.parametrize(
    ("a", "b", "flags"),
    [
        ((2, 5, 7), (2, 7, 3), {"alpha": 0.25}),
        ((2, 7, 5), (2, 3, 7), {"transA": 1, "transB": 1}),
        ((3, 4, 5, 6), (4, 5, 6, 2), {"transBatchA": 1}),
        ((4, 3, 2, 6), (4, 2, 3, 6), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    ],
)
def test_fused_matmul(a: tuple[int, ...], b: tuple[int, ...], flags: dict[str, Any]) -> None:
    if flags.get("transBatchB"):
        a, b = (3, 2, 4, 6), (3, 2, 4, 6)
    elif flags.get("transBatchA"):
        a, b = (5, 3, 4, 6), (3, 4, 6, 2)
    check(*model_of("FusedMatMul", [noise(*a), noise(*b, seed=1)], **flags))


@pytest.mark.parametrize(
    ("operator", "count", "attributes"),
    [
        ("Gelu", 1, {}),
        ("BiasGelu", 2, {}),
        ("FastGelu", 1, {}),
        ("FastGelu", 2, {}),
        ("QuickGelu", 1, {"alpha": 1.5}),
    ],
)
def test_gelus(operator: str, count: int, attributes: dict[str, Any]) -> None:
    operands = [noise(2, 5, 16) * 3, noise(16)][:count]
    check(*model_of(operator, operands, **attributes))


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("parts", [3, 4, 5])
def test_skip_layer_normalisation(parts: int, outputs: int) -> None:
    operands = [noise(2, 5, 16), noise(2, 5, 16, seed=1), noise(16), noise(16), noise(16, seed=2)]
    model, feeds = model_of("SkipLayerNormalization", operands[:parts], 1, epsilon=1e-3)
    if outputs == 4:
        node = model.graph.node[0]
        node.output.extend(["", "", "sum"])
        model.graph.output.append(helper.make_empty_tensor_value_info("sum"))
    check(model, feeds)


def test_root_mean_square_normalisations() -> None:
    x, skip, gamma = noise(2, 5, 16), noise(2, 5, 16, seed=1), noise(16)
    check(*model_of("SkipSimplifiedLayerNormalization", [x, skip, gamma], epsilon=1e-3))
    check(*model_of("SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-3))


def test_layer_normalisation_before_onnx_had_it() -> None:
    operands = [noise(2, 5, 16), noise(16), noise(16)]
    check(*model_of("LayerNormalization", operands, domain="", epsilon=1e-3))


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embeddings(mask: bool, segments: bool) -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(0, 30, (2, 6)).astype(np.int32)
    kinds = random.integers(0, 2, (2, 6)).astype(np.int32)
    ones = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
    operands = [
        *(tokens, kinds if segments else None),
        *(noise(30, 8), noise(10, 8), noise(2, 8) if segments else None),
        *(noise(8), noise(8, seed=1), ones if mask else None),
    ]
    model, feeds = model_of(
        "EmbedLayerNormalization", operands, 2, constants=(2, 3, 4, 5, 6), epsilon=1e-5
    )
    check(model, feeds)


MASKS = {
    "none": None,
    "lengths": np.array([4, 6], np.int32),
    "keys": np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32),
    "scores": np.tril(np.ones((2, 6, 6), np.int32)),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(mask: str, unidirectional: int) -> None:
    operands = [noise(2, 6, 16), noise(16, 48) * 0.3, noise(48), MASKS[mask]]
    check(
        *model_of(
            "Attention", operands, constants=(1, 2), num_heads=4, unidirectional=unidirectional
        )
    )


def test_attention_with_a_past_and_added_scores() -> None:
    operands = [noise(2, 3, 16), noise(16, 48) * 0.3, noise(48), None, noise(2, 2, 4, 5, 4)]
    check(*model_of("Attention", operands, 2, constants=(1, 2), num_heads=4, scale=0.4))
    operands = [noise(2, 6, 16), noise(16, 48), noise(48), None, None, noise(2, 4, 6, 6)]
    check(*model_of("Attention", operands, constants=(1, 2), num_heads=4))


def test_attention_with_an_empty_past() -> None:
    """As a decoder begins: the keys and values of no step."""
    operands = [noise(2, 3, 16), noise(16, 48) * 0.3, noise(48), None, noise(2, 2, 4, 0, 4)]
    check(*model_of("Attention", operands, 2, constants=(1, 2, 4), num_heads=4))
    past = noise(2, 4, 0, 4)
    operands = [*(noise(2, 3, 16, seed=seed) for seed in range(3)), None, None, None, past, past]
    check(*model_of("MultiHeadAttention", operands, 3, constants=(6, 7), num_heads=4))


@pytest.mark.parametrize("mask", MASKS)
def test_quantised_attention(mask: str) -> None:
    random = np.random.default_rng(7)
    x = random.integers(0, 256, (2, 6, 16)).astype(np.uint8)
    weights = random.integers(-127, 128, (16, 48)).astype(np.int8)
    operands = [x, weights, noise(48), np.float32(0.02), np.float32(0.004), MASKS[mask]]
    operands += [np.uint8(120), np.int8(0)]
    arrays = [None if each is None else np.asarray(each) for each in operands]
    model, feeds = model_of("QAttention", arrays, constants=(1, 2, 3, 4, 6, 7), num_heads=4)
    check(model, feeds)
    module, _ = prepared(import_onnx(model))
    kinds = [op.inputs[0].type for op in module.walk() if op.name == "graph.matmul"]
    assert "ui8" in str(kinds[0])


def test_attention_with_a_smaller_value() -> None:
    operands = [noise(2, 6, 16), noise(16, 40) * 0.3, noise(40)]
    check(*model_of("Attention", operands, num_heads=4, qkv_hidden_sizes=[16, 16, 8]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", [None, np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)])
def test_multi_head_attention(bias: bool, mask: np.ndarray | None) -> None:
    operands = [
        *(noise(2, 6, 16), noise(2, 5, 16, seed=1), noise(2, 5, 16, seed=2)),
        *(noise(48) if bias else None, mask),
    ]
    check(*model_of("MultiHeadAttention", operands, num_heads=4))


@pytest.mark.parametrize("mask", [None, np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)])
def test_multi_head_attention_with_keys_of_heads(mask: np.ndarray | None) -> None:
    """Keys and values [b, heads, t, d], as a decoder keeps those of its encoder."""
    operands = [noise(2, 6, 16), noise(2, 4, 5, 4, seed=1), noise(2, 4, 5, 4, seed=2), None, mask]
    check(*model_of("MultiHeadAttention", operands, num_heads=4))
    operands[1] = noise(2, 5, 16, seed=1)
    model, _ = model_of("MultiHeadAttention", operands, num_heads=4)
    with pytest.raises(TilewrightError, match=r"its query is not \[b, s, h\]"):
        import_onnx(model)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("heads", [False, True])
def test_rotary_embedding(interleaved: int, heads: bool) -> None:
    angles = noise(20, 4)
    x = noise(2, 3, 6, 8) if heads else noise(2, 6, 24)
    for positions in (np.array([2]), np.array([[0, 1, 2, 3, 4, 5], [3, 4, 5, 6, 7, 8]])):
        operands = [x, positions.astype(np.int64), np.cos(angles), np.sin(angles)]
        check(*model_of("RotaryEmbedding", operands, interleaved=interleaved))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_maps(dtype: Any) -> None:
    q = Quantised(1)
    x, y = (q.input(2, 5, 6, 6, dtype=dtype) for _ in range(2))
    a = x, q.constant(0.02), q.constant(3 if dtype is np.int8 else 120, dtype)
    b = y, q.constant(0.03), q.constant(50, dtype)
    end = q.constant(0.041), q.constant(20, dtype)
    small = q.constant(0.004), q.constant(-10 if dtype is np.int8 else 60, dtype)
    mine: dict[str, Any] = {"domain": DOMAIN}
    results = [
        q.node("QLinearAdd", *a, *b, *end, **mine),
        q.node("QLinearMul", *a, *b, *end, **mine),
        q.node("QLinearSigmoid", *a, *small, **mine),
        q.node("QLinearLeakyRelu", *a, *end, alpha=0.2, **mine),
        q.node("QLinearGlobalAveragePool", *a, *small, **mine),
        q.node("QLinearAveragePool", *a, *end, kernel_shape=[3, 3], pads=[1] * 4, **mine),
        q.node("QLinearConcat", *end, *a, *b, axis=1, **mine),
    ]
    names = check_units(q.model(*results), q.feeds())
    assert "dequantise_linear" not in names


def test_quantised_softmax() -> None:
    q = Quantised(2)
    x = q.input(4, 30, dtype=np.uint8)
    operands = x, q.constant(0.05), q.constant(100, np.uint8)
    end = q.constant(1 / 256), q.constant(0, np.uint8)
    y = q.node("QLinearSoftmax", *operands, *end, axis=1, opset=13, domain=DOMAIN)
    check_units(q.model(y), q.feeds(), share=0.1)


def test_quantised_gemm() -> None:
    q = Quantised(3)
    x = q.input(4, 30, dtype=np.uint8)
    w = q.constant(q.integers(np.int8, 20, 30), np.int8)
    scales = q.constant(np.linspace(0.001, 0.01, 20, dtype=np.float32))
    operands = [x, q.constant(0.02), q.constant(100, np.uint8), w, scales]
    operands += [q.constant(np.zeros(20), np.int8)]
    operands += [q.constant(q.integers(np.int16, 20), np.int32)]
    end = q.constant(0.05), q.constant(128, np.uint8)
    y = q.node("QGemm", *operands, *end, transB=1, domain=DOMAIN)
    assert "matmul" in check_units(q.model(y), q.feeds())


def test_products_to_floats() -> None:
    random = np.random.default_rng(4)
    a = random.integers(0, 256, (5, 24)).astype(np.uint8)
    b = random.integers(-128, 128, (24, 9)).astype(np.int8)
    scales = np.float32(0.02), noise(9) ** 2 + 0.01
    zeros = np.uint8(77), np.zeros(9, np.int8)
    operands = [a, b, *scales, *zeros, noise(9)]
    model, feeds = model_of(
        "MatMulIntegerToFloat",
        [np.asarray(each) for each in operands],
        constants=(1, 2, 3, 4, 5, 6),
    )
    check(model, feeds)
    x = noise(2, 5, 24)
    operands = [x, b, scales[1], zeros[1], noise(9)]
    model, feeds = model_of("DynamicQuantizeMatMul", operands, constants=(1, 2, 3, 4))
    check(model, feeds)


def test_what_is_not_known_is_refused() -> None:
    model, _ = model_of("NhwcFusedConv", [np.zeros((1, 4, 4, 3), np.uint8)], kernel_shape=[2, 2])
    with pytest.raises(TilewrightError) as refused:
        import_onnx(model)
    (problem,) = refused.value.problems
    assert problem.where == "node 'the_node' (com.microsoft.NhwcFusedConv)"
    assert (
        problem.reason
        == f"it is none of the {len(CONTRIBUTED)} operators of its domain that are known"
    )
    assert problem.help.startswith("near to it are com.microsoft.FusedConv,")
    model, _ = model_of("PagedAttention", [noise(1, 2, 8)], num_heads=4)
    with pytest.raises(TilewrightError, match=r"near to it are com\.microsoft\.Attention, "):
        import_onnx(model)
    model, _ = model_of("Gelu", [noise(3)], unheard=1)
    with pytest.raises(TilewrightError, match="unheard"):
        import_onnx(model)
    model, _ = model_of("Attention", [noise(2, 6, 16)], num_heads=4)
    with pytest.raises(TilewrightError, match="inputs"):
        import_onnx(model)
