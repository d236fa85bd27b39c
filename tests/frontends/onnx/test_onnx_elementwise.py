"""Activations and arithmetic, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper
from onnxruntime import InferenceSession

from tests.frontends.onnx.onnx_models import check, feeds_of, model_of, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret


def names_of(model):
    return [op.name for op in network_of(import_onnx(model).module).block.ops]


@pytest.mark.parametrize("opset", [9, 13, 22])
@pytest.mark.parametrize(
    "operator", ["Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Erf", "Elu", "Softplus"]
)
def test_unary(operator, opset):
    check(single(operator, [(2, 3, 4, 5)], opset))


@pytest.mark.parametrize("operator", ["Sqrt", "Log"])
def test_unary_of_positive_numbers(operator):
    model = single(operator, [(2, 3, 4)])
    check(model, feeds_of(model, low=0.1, high=9))


def test_hard_activations():
    for opset in (9, 22):
        check(single("HardSigmoid", [(3, 40)], opset))
        check(single("HardSigmoid", [(3, 40)], opset, alpha=0.9, beta=0.1))
    model = single("HardSwish", [(3, 40)], 14)
    check(model, feeds_of(model, low=-5, high=5))


def test_leaky_relu_and_elu():
    for opset in (9, 16):
        check(single("LeakyRelu", [(2, 3, 4)], opset))
        check(single("LeakyRelu", [(2, 3, 4)], opset, alpha=0.3))
    check(single("Elu", [(2, 3, 4)], alpha=0.7))


@pytest.mark.parametrize("slope", [(1,), (3, 1, 1), (1, 3, 1, 1), (5,), (2, 3, 4, 5)])
def test_prelu(slope):
    for opset in (9, 16):
        check(single("PRelu", [(2, 3, 4, 5), noise(*slope)], opset))


def test_prelu_of_a_slope_that_is_too_large_is_refused():
    with pytest.raises(TilewrightError, match="does not broadcast"):
        import_onnx(single("PRelu", [(3, 1), noise(3, 4)]))


def scalar(value):
    return np.array(value, np.float32)


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.7), (0.0, 6.0), (None, 0.3), (-0.3, None)])
def test_clip(low, high):
    bounds = {k: v for k, v in (("min", low), ("max", high)) if v is not None}
    check(single("Clip", [(3, 40)], 9, **bounds))
    operands = [None if bound is None else scalar(bound) for bound in (low, high)]
    for opset in (11, 13):
        check(single("Clip", [(3, 40), *operands], opset))


def test_clip_at_zero_is_relu_and_without_bounds_nothing():
    assert "graph.relu" in names_of(single("Clip", [(3, 4), scalar(0)]))
    assert "graph.relu" in names_of(single("Clip", [(3, 4)], 9, min=0.0))
    assert names_of(single("Clip", [(3, 4)])) == ["graph.output"]
    assert "graph.relu" in names_of(single("Max", [(3, 4), scalar(0)]))


def test_clip_with_computed_bounds():
    model = single("Clip", [(3, 40), (), ()], 13)
    feeds = feeds_of(model) | {"x1": scalar(-0.4), "x2": scalar(0.9)}
    check(model, feeds)


def test_clip_of_crossed_bounds_gives_the_upper_one():
    node = helper.make_node("Clip", ["x0", "x1", "x2"], ["y0"])
    model = model_of(
        [node, helper.make_node("Mul", ["y0", "x0"], ["z"])],
        {"x0": (2, 3)},
        ["z"],
        {"x1": scalar(2), "x2": scalar(-1)},
        13,
    )
    check(model)


SHAPES = [
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 4), (3, 1)),
    ((3,), (2, 3, 4, 3)),
    ((2, 3), ()),
]


@pytest.mark.parametrize("opset", [9, 14])
@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
def test_binary(operator, a, b, opset):
    right = np.asarray(np.abs(noise(*b)) + 0.5, np.float32)
    check(single(operator, [a, right], opset))
    model = single(operator, [a, b], opset)
    feeds = feeds_of(model)
    feeds["x1"] = np.asarray(np.abs(feeds["x1"]).reshape(b) + 0.5, np.float32)
    check(model, feeds)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
def test_binary_with_a_constant_first(operator):
    check(single(operator, [noise(3, 1), (2, 1, 4)]))


def test_pow():
    model = single("Pow", [(2, 3), scalar(1.5)])
    check(model, feeds_of(model, low=0.1, high=3))


def test_the_power_of_a_half():
    """A root where the operand is known to be no less than zero; else minus infinity has one."""
    model = single("Pow", [(6,), scalar(0.5)])
    assert "graph.pow" in names_of(model)
    feeds = {"x0": np.array([-np.inf, -0.0, 0.25, np.inf, np.nan, -1], np.float32)}
    imported = import_onnx(model)
    (found,) = interpret(imported.module, imported.weights, feeds).values()
    (expected,) = InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(found, expected)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("Add", ["squares", "least"], ["sum"]),
        helper.make_node("Pow", ["sum", "half"], ["y"]),
    ]
    constants = {"least": np.array(1e-5, np.float32), "half": np.array(0.5, np.float32)}
    model = model_of(nodes, {"x": (2, 3)}, ["y"], constants)
    check(model)
    assert "graph.sqrt" in names_of(model)


@pytest.mark.parametrize("operator", ["Sum", "Max", "Min", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_variadic(operator, count):
    operands = [(2, 3, 4), noise(3, 4), (4,), noise(2, 1, 1)][:count]
    for opset in (9, 13):
        check(single(operator, operands, opset))


def test_relu6_as_exporters_write_it():
    nodes = [
        helper.make_node("Max", ["zero", "x"], ["a"]),
        helper.make_node("Min", ["a", "six"], ["y"]),
    ]
    model = model_of(nodes, {"x": (4, 50)}, ["y"], {"zero": scalar(0), "six": scalar(6)})
    check(model, feeds_of(model, low=-9, high=9))
    assert names_of(model) == ["graph.relu", "graph.clip", "graph.output"]


def test_identity_dropout_and_cast_vanish():
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Dropout", ["a", "ratio"], ["b", "unused"]),
        helper.make_node("Cast", ["b"], ["c"], to=1),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = model_of(nodes, {"x": (4, 5)}, ["y"], {"ratio": scalar(0.3)}, 13)
    assert names_of(model) == ["graph.relu", "graph.output"]
    check(model)
    check(single("Dropout", [(2, 3)], 9, ratio=0.7))


def test_dropout_in_training_is_refused():
    with pytest.raises(TilewrightError, match="training"):
        import_onnx(single("Dropout", [(2, 3), scalar(0.5), np.array(True)], 13))
    with pytest.raises(TilewrightError, match="onnx-dtype"):
        import_onnx(single("Cast", [(2, 3)], to=7))


def test_the_mask_of_dropout_is_all_true():
    model = single("Dropout", [(2, 3)], 13, outputs=2)
    model.graph.output[1].type.tensor_type.elem_type = 9
    imported = import_onnx(model)
    x = np.ones((2, 3), np.float32)
    _, mask = interpret(imported.module, imported.weights, {"x0": x}).values()
    assert mask.dtype == np.bool_ and mask.shape == (2, 3) and mask.all()
