"""Networks of the kinds that the example targets are shown on, small and built anew."""

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node


def _saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    weights: dict[str, NDArray[np.float32]],
) -> Path:
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def residual_block(path: Path, channels: int = 8, size: int = 8) -> Path:
    """A block of ResNet whose shortcut is a convolution: both branches halve the image."""
    generator = np.random.default_rng(7)

    def weight(out: int, into: int, taps: int) -> NDArray[np.float32]:
        scale = (2 / (into * taps * taps)) ** 0.5
        return (generator.normal(size=(out, into, taps, taps)) * scale).astype(np.float32)

    wide = 2 * channels
    weights = {
        "w0": weight(channels, 3, 3),
        "w1": weight(wide, channels, 3),
        "w2": weight(wide, wide, 3),
        "w3": weight(wide, channels, 1),
        **{f"b{n}": generator.normal(size=wide).astype(np.float32) * 0.1 for n in range(1, 4)},
        "b0": generator.normal(size=channels).astype(np.float32) * 0.1,
    }
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], **pads),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1", "b1"], ["c1"], strides=[2, 2], **pads),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], **pads),
        node("Conv", ["r0", "w3", "b3"], ["c3"], strides=[2, 2]),
        node("Add", ["c2", "c3"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
    ]
    return _saved(path, nodes, (1, 3, size, size), weights)


def attention(path: Path, rows: int = 6, width: int = 8, heads: int = 2) -> Path:
    """Attention of several heads over the rows of one input, and its projection; the queries are
    scaled by their weights."""
    generator = np.random.default_rng(11)
    weights = {
        f"w{name}": (generator.normal(size=(width, width)) * width**-0.5).astype(np.float32)
        for name in "qkvo"
    }
    weights["wq"] *= np.float32((width / heads) ** -0.5)
    shape = numpy_helper.from_array(np.array([rows, heads, width // heads]), "shape")
    joined = numpy_helper.from_array(np.array([rows, width]), "joined")
    nodes = [node("Constant", [], [name.name], value=name) for name in (shape, joined)]
    for name, perm in (("q", [1, 0, 2]), ("k", [1, 2, 0]), ("v", [1, 0, 2])):
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "shape"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=perm),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Transpose", ["o"], ["o1"], perm=[1, 0, 2]),
        node("Reshape", ["o1", "joined"], ["o2"]),
        node("MatMul", ["o2", "wo"], ["y"]),
    ]
    return _saved(path, nodes, (rows, width), weights)
