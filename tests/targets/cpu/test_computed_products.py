"""Products of two computed matrices: random shapes, against NumPy."""

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright

EXTENTS = (1, 2, 3, 7, 8, 13, 16, 17, 31, 33, 40, 64, 65)
PRODUCTS = 12


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_products(seed: int, tmp_path: Path) -> None:
    """One network of many products; each B as it is, transposed, shared by the batch, or A."""
    draw, values = random.Random(seed), np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    feeds: dict[str, np.ndarray] = {}
    wanted: dict[str, np.ndarray] = {}
    for number in range(PRODUCTS):
        m, k, n = draw.choices(EXTENTS, k=3)
        batch = tuple(draw.choices((1, 2, 3), k=draw.choice((0, 0, 1, 2, 3))))
        a = values.standard_normal((*batch, m, k)).astype(np.float32)
        kept = batch[draw.randint(0, len(batch)) :]
        b = values.standard_normal((*kept, k, n)).astype(np.float32)
        x, w, y = f"a{number}", f"b{number}", f"y{number}"
        feeds[x], form = a, number % 3
        if form == 0:
            feeds[w], wanted[y] = b, a @ b
        elif form == 1:
            feeds[w], wanted[y] = np.ascontiguousarray(np.swapaxes(b, -1, -2)), a @ b
            order = [*range(b.ndim - 2), b.ndim - 1, b.ndim - 2]
            nodes.append(helper.make_node("Transpose", [w], [f"t{number}"], perm=order))
            w = f"t{number}"
        else:
            feeds[x] = a = values.standard_normal((*batch, m, m)).astype(np.float32)
            w, wanted[y] = x, a @ a
        nodes.append(helper.make_node("MatMul", [x, w], [y], name=f"product{number}"))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "products",
        [info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()],
        [info(name, TensorProto.FLOAT, array.shape) for name, array in wanted.items()],
    )
    path = tmp_path / "products.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    outputs = tilewright.compile(path).run(feeds)
    for name, array in wanted.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-4, err_msg=name)


def test_nan_in_windows_places_and_orders(tmp_path: Path) -> None:
    """C and the interpreter agree where numbers are missing."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MaxPool", ["x"], ["pool"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("GlobalMaxPool", ["x"], ["all"]),
        helper.make_node("ArgMax", ["x"], ["most"], axis=3),
        helper.make_node("ArgMin", ["x"], ["least"], axis=2, select_last_index=1),
        helper.make_node("TopK", ["x", "k"], ["top", "places"], axis=3),
        helper.make_node("ThresholdedRelu", ["x"], ["over"], alpha=0.25),
        helper.make_node("Shrink", ["x"], ["shrunk"], lambd=0.5, bias=0.5),
    ]
    shape, places = [1, 16, 9, 9], ("most", "least", "places")
    floats = ("pool", "all", "top", "over", "shrunk")
    graph = helper.make_graph(
        nodes,
        "missing",
        [info("x", TensorProto.FLOAT, shape)],
        [info(name, TensorProto.FLOAT, None) for name in floats]
        + [info(name, TensorProto.INT64, None) for name in places],
        [helper.make_tensor("k", TensorProto.INT64, [1], [4])],
    )
    path = tmp_path / "missing.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    values = np.random.default_rng(2)
    x = values.standard_normal(shape).astype(np.float32)
    x[values.random(shape) < 0.1] = np.nan
    x[0, 0] = np.nan
    executable = tilewright.compile(path)
    outputs, reference = executable.run({"x": x}), executable.reference({"x": x})
    for name in (*floats, *places):
        np.testing.assert_array_equal(outputs[name], reference[name], err_msg=name)
    assert np.all(outputs["pool"][0, 0] == -np.inf) and not np.isnan(outputs["pool"]).any()
    np.testing.assert_array_equal(outputs["all"].ravel()[1:], np.nanmax(x[0, 1:], axis=(1, 2)))
    np.testing.assert_array_equal(outputs["most"], np.argmax(x, axis=3, keepdims=True))
    last = x.shape[2] - 1 - np.argmin(np.flip(x, 2), axis=2, keepdims=True)
    np.testing.assert_array_equal(outputs["least"], last)
    np.testing.assert_array_equal(outputs["over"], np.where(x > 0.25, x, 0))
    shrunk = np.where(x < -0.5, x + 0.5, np.where(x > 0.5, x - 0.5, 0)).astype(np.float32)
    np.testing.assert_array_equal(outputs["shrunk"], shrunk)
