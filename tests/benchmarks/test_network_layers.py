"""The table of a network's layers on the cube."""

from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.papers.ascend.network_layers import rows
from onnx import TensorProto, helper, numpy_helper


def small() -> onnx.ModelProto:
    """Two convolutions, and a product."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.normal(0, 0.1, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "w3"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 12, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [weight("w1", 32, 16, 3, 3), weight("w2", 32, 32, 3, 3), weight("w3", 32, 10)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def layers() -> dict[str, dict[str, Any]]:
    return {row["kernel"]: row for row in rows(small(), (1, 4))}


def test_layers_are_named_by_their_sizes(layers: dict[str, dict[str, Any]]) -> None:
    first, second, *rest = layers
    assert first == "16 to 32 channels, 3 x 3 on 12 x 20"
    assert second == "32 to 32 channels, 3 x 3 on 12 x 20, stride 2"
    assert rest == ["1 x 32 x 10", "all"]
    assert layers["all"]["count"] == 3


def test_a_row_of_an_image_is_loaded_once(layers: dict[str, dict[str, Any]]) -> None:
    first, second, *_ = layers.values()
    assert (first["windows"], second["windows"]) == (9.0, 9.0 * 6 * 10 / (12 * 20))
    assert first["loads_1"] == second["loads_1"] == 1.0
    # Cores load the rows that their parts have in common, each for itself.
    assert 1.0 < first["loads_4"] < first["windows"]


def test_no_layer_beats_its_bound(layers: dict[str, dict[str, Any]]) -> None:
    for row in layers.values():
        for cores in (1, 4):
            assert 0 < row[f"used_{cores}"] <= row[f"bound_{cores}"] <= 1
    # 12 x 20 pixels are 15 blocks of 16, by 32 channels of 16: the cube's work is all of use.
    multiplications = 12 * 20 * 16 * 32 * 9
    first = next(iter(layers.values()))
    assert first["used_1"] == pytest.approx(multiplications / 4096 / first["cycles_1"])
