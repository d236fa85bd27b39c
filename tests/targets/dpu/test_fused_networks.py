"""Networks on the core, fused and apart: the same bits, fewer bytes, fewer cycles."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.end_to_end.end_to_end_models import image, network
from tests.targets.dpu.test_dpu_networks import Net, mixed

import tilewright
from tilewright.compiler.fuse import fuse
from tilewright.targets.base import find_target


def residual() -> onnx.ModelProto:
    """A bottleneck whose shortcut has a convolution of its own, and one whose shortcut has none."""
    net = Net(1, 3, 56, 56)
    x = net.op(
        "MaxPool", net.conv("x", 3, 24, 7, strides=[2, 2]), kernel_shape=[2, 2], strides=[2, 2]
    )
    short = net.conv(x, 24, 96, 1, then="")
    for _ in range(2):
        channels = 24 if short != x else 96
        y = net.conv(net.conv(x, channels, 24, 1), 24, 24, 3)
        x = net.op("Relu", net.op("Add", short, net.conv(y, 24, 96, 1, then="")))
        short = x
    return net.model(x)


def inverted() -> onnx.ModelProto:
    """Two of MobileNet-v2's blocks, one of stride 2."""
    net = Net(1, 16, 28, 28)
    y = net.conv("x", 16, 96, 1, then="Clip")
    y = net.conv(y, 96, 96, 3, then="Clip", group=96)
    x = net.op("Add", "x", net.conv(y, 96, 16, 1, then=""))
    y = net.conv(x, 16, 96, 1, then="Clip")
    y = net.conv(y, 96, 96, 3, then="Clip", group=96, strides=[2, 2])
    return net.model(net.conv(y, 96, 24, 1, then=""))


def detector() -> onnx.ModelProto:
    """As YOLOv3-tiny: convolutions and pools, a route that is enlarged and joined to an earlier."""
    net = Net(1, 3, 64, 64)
    x = "x"
    channels = 3
    for outputs in (16, 32, 64):
        x = net.conv(x, channels, outputs, 3, then="")
        x = net.op("LeakyRelu", x, alpha=0.1)
        early, channels = x, outputs
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("LeakyRelu", net.conv(x, 64, 96, 3, then=""), alpha=0.1)
    y = net.op("LeakyRelu", net.conv(x, 96, 32, 1, then=""), alpha=0.1)
    scales = net.tensor([1.0, 1.0, 2.0, 2.0])
    placed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    y = net.op("Resize", y, "", scales, mode="nearest", **placed)
    y = net.op("Concat", y, early, axis=1)
    return net.model(net.conv(net.conv(y, 96, 64, 3), 64, 30, 1, then=""))


def head() -> onnx.ModelProto:
    """As SSD's heads: boxes and classes of maps of two sizes, as rows of one result."""
    net = Net(1, 3, 48, 48)
    first = net.conv(net.conv("x", 3, 24, 3, strides=[2, 2]), 24, 48, 3, strides=[2, 2])
    second = net.conv(net.conv(first, 48, 24, 1), 24, 64, 3, strides=[2, 2])
    rows = []
    for x, channels in ((first, 48), (second, 64)):
        y = net.op("Transpose", net.conv(x, channels, 24, 3, then=""), perm=[0, 2, 3, 1])
        shape = net.tensor([0])
        net.weights[-1].CopyFrom(
            onnx.numpy_helper.from_array(np.array([1, -1, 4], np.int64), shape)
        )
        rows.append(net.op("Reshape", y, shape))
    return net.model(net.op("Concat", *rows, axis=1))


def segmentation() -> onnx.ModelProto:
    """Down by pools, up by transposed convolutions, with a route that is joined and one added.

    Their kernels are larger than the strides, as large, and twice as large; one is of one row.
    """
    net = Net(1, 3, 22, 14)

    def up(x: str, channels: int, outputs: int, kernel: list[int], strides: list[int], **more):
        scale = (2 * np.prod(strides) / (channels * np.prod(kernel))) ** 0.5
        weight = net.tensor(net.random.normal(0, scale, (channels, outputs, *kernel)))
        bias = net.tensor(net.random.normal(0, 0.1, outputs))
        return net.op("ConvTranspose", x, weight, bias, strides=strides, **more)

    def half(x: str) -> str:
        return net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])

    first = net.conv("x", 3, 16, 3)
    second = net.conv(half(first), 16, 24, 3)
    x = up(net.conv(half(second), 24, 32, 3), 32, 24, [3, 3], [2, 2])
    factors = [net.tensor(net.random.uniform(0.5, 1.5, 24)) for _ in range(4)]
    x = net.op("Relu", net.op("BatchNormalization", x, *factors))
    x = net.conv(net.op("Concat", x, second, axis=1), 48, 16, 3)
    x = net.op("Relu", up(x, 16, 12, [2, 2], [2, 2]))
    x = net.op("Add", x, net.conv(first, 16, 12, 1))
    x = net.op("Relu", up(x, 12, 8, [4, 4], [2, 2], pads=[1] * 4))
    x = net.op("Relu", up(x, 8, 8, [1, 3], [1, 2], pads=[0, 1, 0, 1]))
    return net.model(net.conv(x, 8, 5, 1, then=""))


SMALL = {
    "mixed": mixed,
    "residual": residual,
    "inverted": inverted,
    "detector": detector,
    "head": head,
}
LARGE = {"resnet18": 64, "squeezenet": 64, "mobilenet_v2": 64}


def compared(model: onnx.ModelProto, target: str, folder: Path, *, alone: bool = False) -> None:
    """``alone`` says that the host does nothing but change the numbers' form."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    sample = image(onnx.load(path))
    core = find_target(target)
    # Nothing fused, and no input stays for several kernels: each loads its own.
    memories = [one.model_copy(update={"resident": ()}) for one in core.machine().memories]
    without = core.machine().model_copy(update={"fusions": (), "memories": tuple(memories)})
    runs = []
    for machine in (None, without):
        made = tilewright.compile(path, core, machine=machine, calibration=[sample])
        outputs = made.run(sample, check_races=True)
        check = made.check(sample, outputs)
        assert check.equal and (check.exact or not alone)
        hosts = [kernel.symbol for kernel in made.profile.kernels if kernel.on_host]
        assert not alone or all("quantise" in symbol for symbol in hosts)
        runs.append((made.profile, outputs))
    (fused, found), (apart, want) = runs
    assert all(np.array_equal(found[name], want[name]) for name in want)
    assert any(np.unique(want[name]).size > 5 for name in want)
    count = [sum(not k.on_host for k in profile.kernels) for profile in (fused, apart)]
    assert count[0] < count[1]
    assert fused.dram_bytes < apart.dram_bytes
    assert fused.cycles < apart.cycles


@pytest.mark.slow
def test_fused_networks_give_the_same_bits_in_less_time(tmp_path: Path) -> None:
    compared(SMALL["residual"](), "zu2", tmp_path)


@pytest.mark.slow
def test_a_network_that_keeps_rows_of_a_halo_gives_the_same_bits(tmp_path: Path) -> None:
    """Windows of stride 2 over a map of odd size: the search says that rows stay."""
    net = Net(1, 16, 37, 41)
    model = net.model(net.conv(net.conv("x", 16, 24, 3), 24, 20, 3, strides=[2, 2]))
    onnx.save(model, tmp_path / "model.onnx")
    core = find_target("zu2")
    report = fuse(tmp_path / "model.onnx", core, core.machine(), searches=("exact",))
    (candidate,) = report.to_json()["candidates"]
    assert candidate["keeps_rows"] == 1 and len(report.plans["exact"].groups) == 1
    compared(model, "zu2", tmp_path)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["zu2", "dpu-b4096-isa0"])
@pytest.mark.parametrize("name", SMALL)
def test_fused_networks_of_all_kinds(name: str, target: str, tmp_path: Path) -> None:
    compared(SMALL[name](), target, tmp_path)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["zu2", "dpu-b512"])
def test_a_segmentation_network_runs_on_the_core_alone(target: str, tmp_path: Path) -> None:
    compared(segmentation(), target, tmp_path, alone=True)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_fused_networks_of_the_benchmarks(name: str, tmp_path: Path) -> None:
    compared(network(name, LARGE[name]), "zu2", tmp_path)
