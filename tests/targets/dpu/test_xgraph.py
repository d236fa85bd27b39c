"""One network from Caffe and as tf2onnx writes it: the same kernels, the same results.

DNNVM's XGraph (section 4.1): intrinsic fusion makes batch normalisations and scales part of the
weights, point-wise fusion joins activations and sums, and what only changes dimensions becomes the
order in which LOAD and SAVE count.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frontends.caffe.caffe_models import caffemodel, input_of, layer
from tests.slow import but_fast

import tilewright

SOURCE = re.compile(r"\w+_(?=[0-9a-f]{8}\b)")

SIZE, CHANNELS, WIDE, CLASSES = 12, 8, 16, 10


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)

    def normal(*shape: int, scale: float = 0.2) -> np.ndarray:
        return generator.normal(0, scale, shape).astype(np.float32)

    arrays = {"w0": normal(WIDE, CHANNELS, 3, 3), "w1": normal(WIDE, WIDE, 3, 3)}
    for number in (0, 1):
        arrays |= {
            f"mean{number}": normal(WIDE),
            f"variance{number}": generator.uniform(0.5, 1.5, WIDE).astype(np.float32),
            f"gamma{number}": generator.uniform(0.5, 1.5, WIDE).astype(np.float32),
            f"beta{number}": normal(WIDE),
        }
    return arrays | {"dense": normal(CLASSES, WIDE), "offset": normal(CLASSES)}


def caffe(folder: Path) -> dict[str, Any]:
    """A residual block, a pool and a classifier, in layers of Caffe."""
    conv = "convolution_param { num_output: 16 kernel_size: 3 pad: 1 bias_term: false }"
    text = input_of("x", (1, CHANNELS, SIZE, SIZE))
    w, blobs = weights(), dict[str, list[np.ndarray]]()
    for number, (bottom, top) in enumerate((("x", "a"), ("r", "b"))):
        text += layer("Convolution", conv, [bottom], [f"c{number}"], f"conv{number}")
        settings = "batch_norm_param { use_global_stats: true eps: 1e-3 }"
        text += layer("BatchNorm", settings, [f"c{number}"], [f"n{number}"], f"norm{number}")
        settings = "scale_param { bias_term: true }"
        text += layer("Scale", settings, [f"n{number}"], [top], f"scale{number}")
        if number == 0:
            text += layer("ReLU", "", ["a"], ["r"], "relu0")
        blobs[f"conv{number}"] = [w[f"w{number}"]]
        one = np.ones(1, np.float32)
        blobs[f"norm{number}"] = [w[f"mean{number}"], w[f"variance{number}"], one]
        blobs[f"scale{number}"] = [w[f"gamma{number}"], w[f"beta{number}"]]
    text += layer("Eltwise", "eltwise_param { operation: SUM }", ["b", "r"], ["s"], "sum")
    text += layer("ReLU", "", ["s"], ["t"], "relu1")
    pool = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
    text += layer("Pooling", pool, ["t"], ["p"], "pool")
    text += layer(
        "Pooling", "pooling_param { pool: AVE global_pooling: true }", ["p"], ["g"], "mean"
    )
    text += layer("InnerProduct", "inner_product_param { num_output: 10 }", ["g"], ["y"], "dense")
    blobs["dense"] = [w["dense"], w["offset"]]
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(caffemodel(blobs))
    return {"model": folder / "net.prototxt", "caffemodel": folder / "net.caffemodel"}


def tensorflow(folder: Path) -> dict[str, Any]:
    """The same as tf2onnx writes a model of TensorFlow: images in NHWC, transposed at the ends, a
    mean over axes, and a product with a transposed matrix."""
    w = weights()
    nodes = [helper.make_node("Transpose", ["x"], ["i"], name="front", perm=[0, 3, 1, 2])]
    for number, (bottom, top) in enumerate((("i", "a"), ("r", "b"))):
        nodes.append(
            helper.make_node(
                *("Conv", [bottom, f"w{number}"], [f"c{number}"], f"conv{number}"),
                kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1],
            )
        )  # fmt: skip
        given = [f"{name}{number}" for name in ("c", "gamma", "beta", "mean", "variance")]
        nodes.append(
            helper.make_node("BatchNormalization", given, [top], f"norm{number}", epsilon=1e-3)
        )
        if number == 0:
            nodes.append(helper.make_node("Relu", ["a"], ["r"], "relu0"))
    nodes += [
        helper.make_node("Add", ["b", "r"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["t"], "relu1"),
        helper.make_node("MaxPool", ["t"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["p"], ["q"], "back", perm=[0, 2, 3, 1]),
        helper.make_node("ReduceMean", ["q"], ["g"], "mean", axes=[1, 2], keepdims=0),
        helper.make_node("MatMul", ["g", "matrix"], ["m"], "dense"),
        helper.make_node("Add", ["m", "offset"], ["y"], "bias"),
    ]
    w["matrix"] = np.ascontiguousarray(w.pop("dense").T)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, SIZE, SIZE, CHANNELS))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, CLASSES))],
        [numpy_helper.from_array(array, name) for name, array in w.items()],
    )
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return {"model": path}


@pytest.mark.parametrize("target", but_fast(["zu2", "dpu-b4096"], ["dpu-b4096"]))
def test_caffe_and_tensorflow_give_the_same_kernels(target: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    images = [generator.normal(size=(1, CHANNELS, SIZE, SIZE)).astype(np.float32) for _ in "abc"]
    found: list[tuple[list[Any], np.ndarray]] = []
    for make, order in ((caffe, (0, 1, 2, 3)), (tensorflow, (0, 2, 3, 1))):
        options = make(tmp_path)
        samples = [{"x": image.transpose(order).copy()} for image in images]
        executable = tilewright.compile(target=target, calibration=samples, **options)
        kernels = executable.manifest.kernels
        hosted = [kernel.name for kernel in kernels if kernel.engine != "accelerator"]
        assert len(hosted) == 2 and all("quantise" in name for name in hosted)  # The ends.
        result = executable.run(samples[0])
        assert executable.check(samples[0], result).equal
        kernels = [
            # Of weights, the hash of what the core has is theirs in common, not the name.
            (SOURCE.sub("", k.schedule or ""), k.predicted_cycles, k.moved_bytes)
            for k in executable.manifest.kernels
        ]
        found.append((kernels, result["y"]))
    (first, one), (second, other) = found
    assert len(first) < 8 and first == second
    np.testing.assert_array_equal(one, other)
