"""A network with transposed convolutions, on machines beside the CNN cores that split phases."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.end_to_end.end_to_end_models import ROOT, SMALL_NPU, image, run_checked
from tests.graph.passes.pass_networks import Builder
from tests.targets.dpu.test_dpu_networks import Net
from tilewright.frontends import Imported

MACHINES = ROOT / "examples" / "machines"


def decoder() -> Net:
    """Down by a stride, up by strides of 2 with kernels of 3 x 3, cut to an odd size, and 1 x 4."""
    net = Net(1, 3, 14, 11)
    x = net.conv("x", 3, 16, 3, strides=[2, 2])
    for channels, kernel, strides, pads in (
        (12, (3, 3), [2, 2], [1, 1, 1, 1]),
        (8, (1, 4), [1, 2], [0, 1, 0, 1]),
    ):
        weight = net.random.normal(0, 0.2, (16 if channels == 12 else 12, channels, *kernel))
        x = net.op("ConvTranspose", x, net.tensor(weight), strides=strides, pads=pads)
        x = net.op("Relu", x)
    net.conv(x, 8, 5, 1, then="")
    return net


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "alone"),
    [
        ("cambricon-x", "quantise"),
        (str(SMALL_NPU), "quantise"),
        (str(MACHINES / "systolic-int8.toml"), ""),
    ],
    ids=lambda text: Path(text).stem,
)
def test_transposed_convolutions(target: str, alone: str, tmp_path: Path) -> None:
    """``alone``: what the host does at most, on machines that write pixels at a distance."""
    net = decoder()
    executable = run_checked(net.model(net.nodes[-1].output[0]), target, tmp_path)
    hosts = [kernel.symbol for kernel in executable.profile.kernels if kernel.on_host]
    assert not alone or (hosts and all(alone in symbol for symbol in hosts))


@pytest.mark.slow
def test_transposed_convolutions_in_half_precision(tmp_path: Path) -> None:
    net = decoder()
    model = net.model(net.nodes[-1].output[0])
    onnx.save(model, tmp_path / "model.onnx")
    executable = tilewright.compile(tmp_path / "model.onnx", "ascend910")
    outputs = executable.run(image(model))
    assert executable.check(image(model), outputs).equal
    assert all(np.ptp(array) > 0.1 for array in outputs.values())
    assert not any(kernel.on_host for kernel in executable.profile.kernels)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "shidiannao"])
def test_interleaved_images_where_no_rule_makes_them(target: str) -> None:
    """Row by row, nothing writes them in place: parts are copied element by element."""
    build = Builder(x=(1, 8, 6, 7))
    parts = [build.op("relu", build.conv(build.inputs["x"], 16, 1)) for _ in range(4)]
    for i in (1, 2, 3):
        ends = (6 - i // 2, 7 - i % 2)
        parts[i] = build.op("slice", parts[i], starts=(0, 0), ends=ends, axes=(2, 3))
    y = build.op("interleave", *parts, steps=(2, 2))
    module = build.finish(
        build.conv(y, 5, pads=(1,) * 4), build.op("interleave", y, y, steps=(2, 1))
    )
    sample = {"x": np.random.default_rng(0).normal(size=(1, 8, 6, 7)).astype(np.float32)}
    imported = Imported(module, build.store, "net", 13, "")
    executable = tilewright.compile(imported, target, calibration=[sample])
    check = executable.check(sample, executable.run(sample, check_races=True))
    assert check.equal and check.exact == (target != "cpu")
