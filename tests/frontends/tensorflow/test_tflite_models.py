"""Int8 models of MLPerf Tiny's kind, as tf2onnx converts them, against two other engines.

make_models.py makes them. ONNX Runtime's graph optimisations are off: its fused kernels round in
other places.
"""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tilewright
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret

FOLDER = Path(__file__).parent / "models"

APART = {
    "anomaly-detection": 0,
    "image-classification": 2,
    "keyword-spotting": 4,
    "visual-wake-words": 24,
}
"""How far outputs lie from TensorFlow Lite's at most, in units of their last place (see
docs/tensorflow.md); the two probabilities of the last have 27 layers behind them."""

INSTALLED = all(importlib.util.find_spec(name) for name in ("tensorflow", "tf2onnx"))
SAME = np.testing.assert_array_equal


@cache
def model(name):
    return tilewright.load(FOLDER / f"{name}.onnx")


def samples(name):
    with np.load(FOLDER / f"{name}.npz") as arrays:
        inputs, outputs = arrays["inputs"], arrays["outputs"]
    (key, _), *_ = network_of(model(name).module).inputs
    return [({key: sample[None]}, output) for sample, output in zip(inputs, outputs, strict=True)]


def interpreted(name, feeds):
    (array,) = interpret(model(name).module, model(name).weights, feeds).values()
    return array


@pytest.mark.parametrize("name", APART)
def test_the_interpreter_is_within_one_of_onnx_runtime(name):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(FOLDER / f"{name}.onnx", options)
    for feeds, _ in samples(name):
        wanted = session.run(None, feeds)[0]
        found = interpreted(name, feeds)
        assert found.dtype == wanted.dtype == np.int8
        assert np.abs(found.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("name", APART)
def test_close_to_tensorflow_lite(name):
    results = [(interpreted(name, feeds)[0].astype(int), wanted) for feeds, wanted in samples(name)]
    apart = max(np.abs(found - wanted).max() for found, wanted in results)
    assert apart <= APART[name]
    # Outputs of different inputs differ, so that nothing constant would pass.
    assert np.ptp([found for found, _ in results], axis=0).max() > APART[name]


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="tensorflow or tf2onnx is not installed")
def test_a_tensorflow_lite_file_is_converted_on_the_way():
    loaded = tilewright.load(FOLDER / "keyword-spotting.tflite")
    (key, _), *_ = network_of(loaded.module).inputs
    for feeds, _ in samples("keyword-spotting"):
        (given,) = feeds.values()
        (found,) = interpret(loaded.module, loaded.weights, {key: given}).values()
        SAME(found, interpreted("keyword-spotting", feeds))


@pytest.mark.slow
@pytest.mark.parametrize("name", APART)
def test_the_cpu_target(name):
    made = tilewright.compile(model(name), "cpu")
    for feeds, _ in samples(name):
        (found,) = made.run(feeds).values()
        apart = np.abs(found.astype(int) - interpreted(name, feeds))
        assert found.dtype == np.int8
        # A sum that lies near a half rounds to one side here and to the other there; the model of
        # 27 layers makes more of it.
        assert apart.max() <= (4 if name == "visual-wake-words" else 1)
