"""Small networks with what kernels refused: bit for bit, on the machine or with a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.runtime import Executable

SHAPE = (1, 8, 7, 6)


def network(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, Any],
    shape: tuple[int, ...] = SHAPE,
) -> Path:
    """A network of an image ``x``, whose last node makes ``y``."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def weight(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(sum(shape)).normal(0, 0.3, shape).astype(np.float32)


def ran(path: Path, target: str = "cambricon") -> Executable:
    """The network, run; its accelerator's words agree with the graph bit for bit."""
    made = tilewright.compile(path, target, directory=path.parent / "package")
    sample = {"x": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}
    check = made.check(sample, made.run(sample))
    assert check.equal
    hosted = [one for one in made.manifest.kernels if one.engine == "host" and one.nodes]
    assert (check.exact and check.mismatches == 0) or hosted
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("stride", "target"), [(1, "cambricon"), (2, "cambricon-s")])
def test_depthwise_blocks_stay_on_the_machine(stride: int, target: str, tmp_path: Path) -> None:
    """Expansion, depthwise convolution and projection with ReLU6, as MobileNet-v2 has them."""
    nodes = [
        helper.make_node("Conv", ["x", "expand"], ["a"]),
        helper.make_node("Clip", ["a", "low", "high"], ["b"]),
        helper.make_node(
            "Conv", ["b", "deep", "bias"], ["c"],
            group=48, pads=[1, 1, 1, 1], strides=[stride, stride],
        ),
        helper.make_node("Clip", ["c", "low", "high"], ["d"]),
        helper.make_node("Conv", ["d", "project"], ["y"]),
    ]  # fmt: skip
    limits = {"low": np.float32(0), "high": np.float32(6)}
    weights = {
        "expand": weight(48, 8, 1, 1),
        "deep": weight(48, 1, 3, 3),
        "bias": weight(48),
        "project": weight(8, 48, 1, 1),
    }
    made = ran(network(tmp_path / "net.onnx", nodes, weights | limits), target)
    assert not [one for one in made.manifest.kernels if one.engine == "host" and one.nodes]


@pytest.mark.slow
def test_windows_in_the_padding_go_to_the_host_with_a_reason(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "wide"], ["a"], pads=[4, 4, 4, 4]),
        helper.make_node("Conv", ["a", "plain"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = {"wide": weight(8, 8, 3, 3), "plain": weight(8, 8, 3, 3)}
    made = ran(network(tmp_path / "net.onnx", nodes, weights))
    hosted = [one for one in made.manifest.kernels if one.engine == "host" and one.nodes]
    assert len(hosted) == 1
    assert "wholly in the padding" in hosted[0].reason


@pytest.mark.slow
def test_kernels_share_weights_of_windows(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "both"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "both"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
    ]
    made = ran(network(tmp_path / "net.onnx", nodes, {"both": weight(8, 8, 3, 3)}))
    assert not [one for one in made.manifest.kernels if one.engine == "host" and one.nodes]


@pytest.mark.slow
def test_steps_of_an_lstm_share_weights_in_few_transfers(tmp_path: Path) -> None:
    """Its recurrent weights are larger than the matrix scratchpad: tiles cut them both ways."""
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=400)]
    weights = {"w": weight(1, 1600, 3), "r": weight(1, 1600, 400), "b": weight(1, 3200)}
    path = network(tmp_path / "net.onnx", nodes, weights, (3, 1, 3))
    made = tilewright.compile(path, "cambricon", directory=tmp_path / "package")
    sample = {"x": np.random.default_rng(1).normal(0, 1, (3, 1, 3)).astype(np.float32)}
    check = made.check(sample, made.run(sample))
    assert check.equal and check.exact and check.mismatches == 0
    cycles = [one["cycles"] for one in made.summary()["kernels"] if one["cycles"]]
    # Two steps read them; the rest takes about as long as one of these.
    assert sum(cycles) < 3 * 1600 * 400 * 2 / 128


@pytest.mark.slow
@pytest.mark.parametrize("pad", [0, 1])
def test_pools_in_the_matrix_scratchpad_stand_beside_weights(pad: int, tmp_path: Path) -> None:
    """The weights of both convolutions lie there, too; the second's load while windows pool."""
    shape = (1, 64, 28, 28)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "MaxPool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2], pads=[pad] * 4
        ),
        helper.make_node("Conv", ["b", "second"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = {"first": weight(64, 64, 3, 3), "second": weight(128, 64, 3, 3)}
    path = network(tmp_path / "net.onnx", nodes, weights, shape)
    made = tilewright.compile(path, "cambricon", directory=tmp_path / "package")
    sample = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    check = made.check(sample, made.run(sample))
    assert check.equal and check.exact and check.mismatches == 0
    assert any("matrix_pool" in one["schedule"] for one in made.summary()["kernels"])


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [24, 64])
def test_results_replace_the_residuals_that_they_add(kilobytes: int, tmp_path: Path) -> None:
    """Tiles of a sum whose second operand comes from main memory, at two sizes of scratchpad."""
    shape = (1, 32, 40, 36)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "second", "bias"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "a"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    # Others than the first ones: what is held of weights that are alike has tests of its own.
    second = -weight(32, 32, 3, 3)
    weights = {"first": weight(32, 32, 3, 3), "second": second, "bias": weight(32)}
    path = network(tmp_path / "net.onnx", nodes, weights, shape)
    sizes = {"memory.vsm.bytes": kilobytes << 10}
    made = tilewright.compile(path, "cambricon", values=sizes, directory=tmp_path / "package")
    sample = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    check = made.check(sample, made.run(sample))
    assert check.equal and check.exact and check.mismatches == 0
    (listing,) = (tmp_path / "package").rglob("program.hlal")
    words = listing.read_text().splitlines()
    assert any("VAV" in line and ".acc" in line for line in words), "bias and residual at once"


@pytest.mark.slow
def test_rows_of_pixels_are_joined_where_they_lie_so(tmp_path: Path) -> None:
    """Pixels beside others of a concatenation, a residual, and a stride that leaves some out."""
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"]),
        helper.make_node("Concat", ["x", "a"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "second", "bias"], ["b"]),
        helper.make_node("Add", ["b", "a"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "third"], ["e"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["e"], ["y"]),
    ]
    weights = {
        "first": weight(16, 16, 1, 1),
        "second": weight(16, 32, 1, 1),
        "bias": weight(16),
        "third": weight(40, 16, 1, 1),
    }
    shape = (1, 16, 41, 40)
    path = network(tmp_path / "net.onnx", nodes, weights, shape)
    made = tilewright.compile(path, "cambricon", directory=tmp_path / "package")
    sample = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    check = made.check(sample, made.run(sample))
    assert check.equal and check.exact and check.mismatches == 0
    text = str([one.schedule for one in made.manifest.kernels if one.schedule])
    widths = [int(n) for n in re.findall(r"[( ]ow=(\d+)|'ow', (\d+)", text) for n in n if n]
    assert max(widths, default=0) > 40
