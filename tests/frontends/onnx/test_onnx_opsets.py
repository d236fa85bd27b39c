"""One network in every operator set that is read, converted by ONNX's own version converter."""

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import helper

from tests.frontends.onnx.onnx_models import assert_close, feeds_of, model_of, noise, onnxruntime_of
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret

NEWEST = onnx.defs.onnx_opset_version()


def network_9():
    """A network of operator set 9 whose operators changed their form since."""
    nodes = [
        helper.make_node("Pad", ["x"], ["a"], pads=[0, 0, 1, 0, 0, 0, 0, 1], value=0.5),
        helper.make_node("Conv", ["a", "w", "b"], ["c"], auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "b", "v"], ["n"], epsilon=1e-3),
        helper.make_node("Clip", ["n"], ["r"], min=-0.5, max=6.0),
        helper.make_node("Dropout", ["r"], ["d"], ratio=0.4),
        helper.make_node("MaxPool", ["d"], ["p"], kernel_shape=[2, 2], strides=[1, 1]),
        helper.make_node("AveragePool", ["p"], ["q"], kernel_shape=[3, 3], pads=[1, 0, 1, 1]),
        helper.make_node("PRelu", ["q", "slope"], ["e"]),
        helper.make_node("LRN", ["e"], ["l"], size=3),
        helper.make_node("Unsqueeze", ["l"], ["u"], axes=[0]),
        helper.make_node("Squeeze", ["u"], ["z"], axes=[0]),
        helper.make_node("ReduceMean", ["z"], ["m"], axes=[3], keepdims=0),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("Gemm", ["f", "fc", "fb"], ["g"], transB=1),
        helper.make_node("Split", ["g"], ["g1", "g2"], axis=1, split=[4, 3]),
        helper.make_node("Concat", ["g2", "g1"], ["h"], axis=1),
        helper.make_node("Slice", ["h"], ["k"], axes=[1], starts=[1], ends=[1000]),
        helper.make_node("Softmax", ["k"], ["y"], axis=1),
    ]
    constants = {
        "w": noise(4, 3, 3, 3),
        "b": noise(4),
        "s": noise(4, seed=1),
        "v": np.abs(noise(4, seed=2)) + np.float32(0.5),
        "slope": noise(4, 1, 1),
        "fc": noise(7, 16) * np.float32(0.3),
        "fb": noise(7),
    }
    return model_of(nodes, {"x": (1, 3, 9, 8)}, ["y"], constants, opset=9)


@pytest.fixture(scope="module")
def reference():
    model = network_9()
    feeds = feeds_of(model)
    return model, feeds, onnxruntime_of(model, feeds)["y"]


@pytest.mark.parametrize("opset", range(9, NEWEST + 1))
def test_operator_set(opset, reference):
    model, feeds, want = reference
    converted = onnx.version_converter.convert_version(model, opset)
    imported = import_onnx(converted)
    assert imported.opset == opset
    assert_close(interpret(imported.module, imported.weights, feeds)["y"], want)
    ops = [op.name for op in network_of(imported.module).block.ops if op.name != "graph.weight"]
    first = [op.name for op in network_of(import_onnx(model).module).block.ops]
    assert ops == [name for name in first if name != "graph.weight"]


@pytest.mark.parametrize("operator", ["LessOrEqual", "GreaterOrEqual"])
@pytest.mark.parametrize("opset", [14, 16])
def test_constant_comparisons(operator: str, opset: int) -> None:
    """ONNX defines them by others before operator set 16, without a rule for their shapes."""
    nodes = [
        helper.make_node(operator, ["rows", "columns"], ["seen"]),
        helper.make_node("Where", ["seen", "x", "zero"], ["y"]),
    ]
    constants = {
        "rows": np.arange(3)[:, None],
        "columns": np.arange(4)[None],
        "zero": np.zeros((), np.float32),
    }
    model = model_of(nodes, {"x": (3, 4)}, ["y"], constants, opset=opset)
    feeds = feeds_of(model)
    imported = import_onnx(model)
    got = interpret(imported.module, imported.weights, feeds)["y"]
    assert_close(got, onnxruntime_of(model, feeds)["y"])
