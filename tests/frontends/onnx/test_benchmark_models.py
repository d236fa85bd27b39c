"""The benchmarks' networks: their signals say something, and import keeps their meaning."""

import numpy as np
import onnx
import pytest

from benchmarks import models
from tests.frontends.onnx.onnx_models import assert_close, onnxruntime_of
from tests.slow import but_fast
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret

# Convolutions and matrix products of each network, as its authors count them.
LAYERS = {
    "alexnet": (5, 3),
    "vgg16": (13, 3),
    "vgg19": (16, 3),
    "resnet18": (20, 1),
    "resnet34": (36, 1),
    "resnet50": (53, 1),
    "googlenet": (57, 1),
    "squeezenet": (26, 0),
    "mobilenet_v2": (52, 1),
    "shufflenet": (49, 1),
    "inception_v2": (69, 1),
    "densenet121": (121, 0),
    "zfnet": (5, 3),
    "bert_base": (0, 12 * 8 + 1),
    "vit_b16": (1, 12 * 8 + 1),
    "vit_small": (1, 12 * 8 + 1),
    "gpt2_step": (0, 12 * 8 + 1),
}


def with_logits(model):
    """The model with what goes into its last softmax as a second output."""
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None)
        )
    return model


def check_network(name):
    _, model = models.build(name)
    model = with_logits(model)
    imported = import_onnx(model)
    ops = [op.name for op in network_of(imported.module).block.ops]
    assert (ops.count("graph.conv"), ops.count("graph.matmul")) == LAYERS[name]
    assert [value.name for value in model.graph.input] == [
        key for key, _ in network_of(imported.module).inputs
    ]
    rows = []
    for seed in range(2):
        feeds = models.feeds(model, seed)
        got = interpret(imported.module, imported.weights, feeds)
        want = onnxruntime_of(model, feeds)
        for output, array in want.items():
            assert_close(got[output], array, output)
        rows.append(np.ravel(list(want.values())[-1]))
    # The logits differ between classes and between images, far beyond the tolerance above.
    assert 0.1 < np.std(rows[0]) < (60 if name == "shufflenet" else 10)
    assert np.std(rows[0] - rows[1]) > 0.05 * np.std(rows[0])
    assert np.corrcoef(rows)[0, 1] < 0.998


@pytest.mark.parametrize(
    "name",
    but_fast(["squeezenet", "mobilenet_v2", "resnet18", "shufflenet"], ["squeezenet"]),
)
def test_small_networks(name):
    check_network(name)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["alexnet", "googlenet", "resnet34", "resnet50", "inception_v2", "densenet121"]
)
def test_large_networks(name):
    check_network(name)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_base", "vit_b16", "vit_small", "gpt2_step"])
def test_transformers(name):
    check_network(name)


@pytest.mark.slow_cases(0)
@pytest.mark.slow
def test_vgg16_has_the_shape_of_vgg16():
    _, model = models.build("vgg16")
    imported = import_onnx(model)
    ops = [op.name for op in network_of(imported.module).block.ops]
    assert (ops.count("graph.conv"), ops.count("graph.matmul")) == LAYERS["vgg16"]
    assert ops.count("graph.max_pool") == 5
    # Parameters of Simonyan & Zisserman's configuration D.
    assert imported.weights.bytes == 4 * 138_357_544


def test_weights_are_the_same_every_time():
    first, second = (models.build("squeezenet")[1].SerializeToString() for _ in range(2))
    assert first == second
