"""Networks in HIVM: only casts run on the host, and the text computes what the graph means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.networks import mobilenet_v2, resnet
from benchmarks.transformers import bert_small
from tests.slow import but_fast
from tests.targets.ascend.hivm_network import HivmNetwork
from tests.targets.ascend.oracle import OPTIONS, bishengir_opt, missing_functions, needs_oracle

from benchmarks import models
from tilewright.graph.interpreter import interpret
from tilewright.ir.types import shape_of

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"


def on_small_images(model: onnx.ModelProto) -> onnx.ModelProto:
    """On images whose sides no stride divides."""
    for axis, extent in ((2, 37), (3, 44)):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = extent
    return model


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "lenet5": lambda: onnx.load(LENET),
    "resnet": lambda: models.randomise(on_small_images(resnet("small", (1, 1)))),
    "mobilenet": lambda: models.randomise(on_small_images(mobilenet_v2())),
    "bert": lambda: models.randomise(bert_small(layers=1, tokens=32)),
}


def compiled(name: str, folder: Path) -> HivmNetwork:
    path = folder / f"{name}.onnx"
    onnx.save(MODELS[name](), path)
    return HivmNetwork(path, folder / name)


@pytest.mark.parametrize("name", but_fast(["lenet5", "resnet"], ["lenet5"]))
def test_the_text_of_a_network_computes_what_its_graph_means(name: str, tmp_path: Path) -> None:
    """Both round at the same places; sums in another order change a rounding here and there, which
    the layers behind spread."""
    network = compiled(name, tmp_path)
    assert network.hosted == [["cast"], ["cast"]]
    ((image, value),) = network.network.inputs
    pixels = np.random.default_rng(1).normal(0, 1, shape_of(value)).astype(np.float32)
    (result,) = network.run(pixels)
    state = network.state
    (wanted,) = interpret(state.network, state.weights, {image: pixels}).values()
    assert np.abs(wanted).max() > 0.1
    assert np.abs(result - wanted).max() <= 2.0**-9 * np.abs(wanted).max()


NETWORKS = [("lenet5", 9), ("resnet", 12), ("mobilenet", 83), ("bert", 26)]


@needs_oracle
@pytest.mark.oracle
@pytest.mark.parametrize(("name", "functions"), NETWORKS)
def test_the_vendors_tool_accepts_a_network(name: str, functions: int, tmp_path: Path) -> None:
    network = compiled(name, tmp_path)
    assert len(network.functions) >= functions
    bishengir_opt(network.text, OPTIONS)
    for text in network.functions.values():
        assert not missing_functions(f"module {{\n{text.rstrip().removesuffix('}')}\n}}\n")
