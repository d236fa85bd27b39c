"""Where Caffe and ONNX mean the same, ONNX Runtime is a second oracle, at larger sizes."""

import numpy as np
from onnx import helper

from tests.frontends.caffe.caffe_models import assert_close, input_of, layer, load, noise, run
from tests.frontends.onnx.onnx_models import model_of, onnxruntime_of

X = noise(2, 12, 29, 31)
W, B = noise(16, 6, 3, 5, seed=1, low=-0.3, high=0.3), noise(16, seed=2)
V, C = noise(10, 16 * 7 * 8, seed=3, low=-0.1, high=0.1), noise(10, seed=4)


def test_a_network_of_both(tmp_path):
    text = (
        input_of("x", X.shape)
        + layer(
            "Convolution",
            "convolution_param { num_output: 16 kernel_h: 3 kernel_w: 5 stride: 2 pad_h: 1 "
            "pad_w: 2 group: 2 }",
            ["x"],
            ["a"],
            "conv",
        )
        + layer("ReLU", "relu_param { negative_slope: 0.25 }", ["a"], ["a"], "relu")
        + layer("LRN", "lrn_param { alpha: 0.3 beta: 0.8 k: 1.5 }", ["a"], ["b"], "norm")
        + layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", ["b"], ["c"], "pool")
        + layer("InnerProduct", "inner_product_param { num_output: 10 }", ["c"], ["d"], "ip")
        + layer("Softmax", "", ["d"], ["y"], "prob")
    )
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], strides=[2, 2], pads=[1, 2, 1, 2],
                         group=2),
        helper.make_node("LeakyRelu", ["a"], ["r"], alpha=0.25),
        helper.make_node("LRN", ["r"], ["n"], size=5, alpha=0.3, beta=0.8, bias=1.5),
        helper.make_node("MaxPool", ["n"], ["p"], kernel_shape=[3, 3], strides=[2, 2],
                         ceil_mode=1),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "c"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=1),
    ]  # fmt: skip
    model = model_of(nodes, {"x": X.shape}, ["y"], {"w": W, "b": B, "v": V, "c": C})
    want = onnxruntime_of(model, {"x": X})["y"]
    got = run(load(tmp_path, text, {"conv": [W, B], "ip": [V, C]}), x=X)["y"]
    assert_close(got, want)
    assert np.ptp(want) > 0.1
