"""Which concatenations are kernels: by price, and the simulator agrees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.compiler.pipeline import run_pipeline
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.passes import join_on_chip
from tilewright.ir import ModuleOp
from tilewright.ir.types import tensor_type
from tilewright.runtime import Executable
from tilewright.targets.base import find_target


class Net:
    """Nodes and weights of a network of one image ``x``."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, NDArray[Any]] = {}
        self.random = np.random.default_rng(sum(shape))

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def conv(self, x: str, ci: int, co: int, k: int = 1) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = self.random.normal(0, (ci * k * k) ** -0.5, (co, ci, k, k))
        return self.op("Relu", self.op("Conv", x, name, pads=[k // 2] * 4))

    def pool(self, x: str) -> str:
        return self.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])

    def saved(self, y: str, path: Path) -> Path:
        ends = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape),
            helper.make_tensor_value_info(y, TensorProto.FLOAT, None),
        ]
        kept = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "net", ends[:1], ends[1:], kept)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def branches(size: int, parts: Sequence[int], axis: int = 1) -> tuple[Net, str]:
    """Convolutions of one image, joined and read by another one."""
    net = Net(1, 16, size, size)
    joined = net.op("Concat", *(net.conv("x", 16, co) for co in parts), axis=axis)
    return net, net.conv(joined, sum(parts) if axis == 1 else parts[0], 16, 3)


def dense(size: int) -> tuple[Net, str]:
    """Each layer reads all before it: joins of joins, whose parts lie in an earlier one, too."""
    net, channels = Net(1, 16, size, size), 16
    x = net.conv("x", 16, 16)
    for _ in range(3):
        x, channels = net.op("Concat", x, net.conv(x, channels, 8, 3), axis=1), channels + 8
    return net, net.conv(x, channels, 16)


def unet(size: int, levels: int = 2) -> tuple[Net, str]:
    """Down and up again, by convolutions and copies of pixels."""
    net = Net(1, 3, size, size)
    x, channels = "x", 3
    skipped: list[tuple[str, int]] = []
    for co in (16, 32)[:levels]:
        x, channels = net.conv(x, channels, co, 3), co
        skipped.append((x, co))
        x = net.pool(x)
    x = net.conv(x, channels, 2 * channels, 3)
    channels *= 2
    for skip, co in reversed(skipped):
        name = f"w{len(net.weights)}"
        net.weights[name] = net.random.normal(0, channels**-0.5, (channels, co, 2, 2))
        x = net.op("ConvTranspose", x, name, strides=[2, 2], kernel_shape=[2, 2])
        x, channels = net.conv(net.op("Concat", skip, x, axis=1), 2 * co, co, 3), co
    return net, x


def inception(size: int) -> tuple[Net, str]:
    """Four branches of other windows, twice."""
    net, x, channels = Net(1, 16, size, size), "x", 16
    for _ in range(2):
        pooled = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
        parts = [
            net.conv(x, channels, 16),
            net.conv(net.conv(x, channels, 8), 8, 24, 3),
            net.conv(net.conv(x, channels, 8), 8, 8, 5),
            net.conv(pooled, channels, 16),
        ]
        x, channels = net.op("Concat", *parts, axis=1), 64
    return net, net.conv(x, channels, 8)


def joins(path: Path, target: str = "cambricon") -> list[str]:
    """The kernels that concatenate."""
    chosen = find_target(target)
    state = run_pipeline(path, chosen, chosen.machine(), until="numbers, layouts, memory")
    return joins_of(state.network)


def joins_of(module: ModuleOp) -> list[str]:
    """The kernels of a network that concatenate."""
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    return [k.symbol.data for k in kernels if k.operations[0].name == "graph.concat"]


def compiled(path: Path, folder: Path, target: str = "cambricon") -> Executable:
    """The network's executable after a run that is right bit for bit."""
    ((_, image),) = network_of(import_onnx(path).module).inputs
    numbers = np.random.default_rng(1).normal(0, 1, tensor_type(image).get_shape())
    sample = {"x": numbers.astype(np.float32)}
    made = tilewright.compile(path, target, directory=folder, calibration=[sample])
    check = made.check(sample, made.run(sample))
    assert check.passed and check.mismatches == 0
    return made


def test_channels_of_many_pixels_are_joined_on_the_chip(tmp_path: Path) -> None:
    net, y = branches(12, (16, 16))
    assert len(joins(net.saved(y, tmp_path / "net.onnx"))) == 1


@pytest.mark.parametrize("target", ["cambricon-x", "zu2", "cpu", "ascend310"])
def test_other_machines_write_parts_in_place(target: str, tmp_path: Path) -> None:
    net, y = branches(12, (16, 16))
    assert not joins(net.saved(y, tmp_path / "net.onnx"), target)


def test_rows_are_written_in_place(tmp_path: Path) -> None:
    """Along rows a part is one block, as it would be in a tensor of its own."""
    net, y = branches(12, (16, 16), axis=2)
    assert not joins(net.saved(y, tmp_path / "net.onnx"))


def test_one_pixel_has_no_gaps(tmp_path: Path) -> None:
    net, y = branches(1, (16, 24))
    assert not joins(net.saved(y, tmp_path / "net.onnx"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4, 9, 20])
def test_the_choice_is_the_faster_one(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways run; what is chosen takes no more than a little longer than the other."""
    net, y = branches(size, (64, 16, 32))
    path = net.saved(y, tmp_path / "net.onnx")
    made = compiled(path, tmp_path / "chosen")
    chosen, is_joined = made.summary()["cycles"], bool(joins_of(made.graph))

    def otherwise(*_: object) -> bool:
        return not is_joined

    monkeypatch.setattr(join_on_chip, "is_faster_on_chip", otherwise)
    made = compiled(path, tmp_path / "other")
    other = made.summary()["cycles"]
    assert bool(joins_of(made.graph)) != is_joined
    assert chosen <= 1.05 * other
    if size >= 9:
        assert is_joined and chosen < 0.5 * other


NETWORKS = {
    "unet": lambda: unet(24),
    "inception": lambda: inception(14),
    "dense": lambda: dense(14),
    "branches": lambda: branches(16, (16, 48, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cambricon", "cambricon-s", "cambricon-m"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_with_joins_take_no_longer_than_predicted(
    name: str, target: str, tmp_path: Path
) -> None:
    """Short kernels begin while those before end, so that a network may take less than their sum;
    blocks that nobody prices would make it take several times as long."""
    net, y = NETWORKS[name]()
    made = compiled(net.saved(y, tmp_path / "net.onnx"), tmp_path / "package", target)
    predicted, taken = made.summary()["predicted_cycles"], made.summary()["cycles"]
    assert 0.65 * predicted <= taken <= 1.12 * predicted
