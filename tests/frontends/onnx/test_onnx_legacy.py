"""Operator sets before 9, with NumPy as the oracle: ONNX Runtime does not vouch for them."""

import numpy as np
import pytest
from onnx import helper

from tests.frontends.onnx.onnx_models import model_of, noise
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

SHAPE = (2, 3, 4, 5)


def run(bad, constants, opset):
    model = model_of([bad], {"x": SHAPE}, ["y"], constants, opset=opset)
    imported = import_onnx(model)
    x = noise(*SHAPE, seed=3)
    return x, interpret(imported.module, imported.weights, {"x": x})["y"]


@pytest.mark.parametrize(
    ("shape", "axis", "wide"),
    [
        ((4, 5), None, (4, 5)),
        ((5,), 3, (5,)),
        ((3, 4), 1, (3, 4, 1)),
        ((3,), 1, (3, 1, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((3,), -3, (3, 1, 1)),
        ((), None, ()),
    ],
)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
def test_an_operand_lies_along_given_axes(operator, shape, axis, wide):
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    other = noise(*shape) + np.float32(2)
    x, y = run(helper.make_node(operator, ["x", "c"], ["y"], **attributes), {"c": other}, 6)
    ways = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    np.testing.assert_allclose(y, ways[operator](x, other.reshape(wide)), rtol=1e-6)


@pytest.mark.parametrize("opset", [6, 7, 8])
def test_nothing_broadcasts_unless_it_is_said(opset):
    node = helper.make_node("Add", ["x", "c"], ["y"])
    if opset >= 7:
        x, y = run(node, {"c": noise(5)}, opset)
        np.testing.assert_allclose(y, x + noise(5), rtol=1e-6)
        return
    with pytest.raises(TilewrightError, match="onnx-shape"):
        run(node, {"c": noise(5)}, opset)


@pytest.mark.parametrize("slopes", [1, 3])
def test_one_slope_for_each_channel_or_for_all(slopes):
    slope = noise(slopes)
    x, y = run(helper.make_node("PRelu", ["x", "c"], ["y"]), {"c": slope}, 6)
    np.testing.assert_allclose(y, np.where(x < 0, x * slope.reshape(-1, 1, 1), x), rtol=1e-6)


def test_training_and_other_forms_are_refused():
    for node, words in [
        (helper.make_node("Dropout", ["x"], ["y"]), "training"),
        (helper.make_node("Add", ["x", "x"], ["y"], consumed_inputs=[0, 0]), "onnx-attribute"),
        (helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 2.0]), "onnx-opset"),
    ]:
        with pytest.raises(TilewrightError, match=words):
            run(node, {}, 7 if node.op_type == "Upsample" else 6)
    x, y = run(helper.make_node("Dropout", ["x"], ["y"], is_test=1), {}, 6)
    np.testing.assert_array_equal(x, y)
    with pytest.raises(TilewrightError, match="onnx-opset"):
        run(helper.make_node("Relu", ["x"], ["y"]), {}, 5)
