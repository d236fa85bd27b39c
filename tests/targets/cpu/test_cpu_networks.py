"""Whole networks from ONNX models, against ONNX Runtime."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tests.targets.cpu.random_networks import Array, random_network

import tilewright
from benchmarks import models
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.runtime.executable import Executable
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.runner import CpuRunner

pytestmark = pytest.mark.usefixtures("built_apart")

TOLERANCE = 2e-5
"""Of the largest element of an output."""

IN_TWO = 2e-4
"""The same where kernels are in two pieces of bfloat16: numbers are rounded to 17 bits there, and
networks add that up (the greatest measured is 1.7e-4, of GoogLeNet)."""


def check(model: onnx.ModelProto, name: str, image: Array, folder: Path) -> None:
    """As compiled by default and, where that has kernels in pieces, without two pieces and without
    any as well: three are as exact as vectors."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = [np.asarray(found) for found in session.run(None, {name: image})]
    package = tilewright.compile(path, target="cpu", directory=folder / "package")
    kernels = package.manifest.kernels
    assert not [kernel.nodes for kernel in kernels if kernel.engine == "host" and kernel.nodes]
    two = any("_pieces " in kernel.schedule for kernel in kernels)
    compare(package, name, image, expected, IN_TWO if two else TOLERANCE)
    if two:
        found = machine()
        kept = tuple(p for p in found.primitives if not (own_of(p).block_cycles and p.approximate))
        whole = found.model_copy(update={"primitives": kept})
        package = tilewright.compile(path, machine=whole, directory=folder / "three")
        compare(package, name, image, expected, TOLERANCE)
    if any("_pieces" in kernel.schedule for kernel in kernels):
        vectors = machine(replace(this_processor(), block_cycles=0.0))
        package = tilewright.compile(path, machine=vectors, directory=folder / "vectors")
        compare(package, name, image, expected, TOLERANCE)


def compare(
    package: Executable, name: str, image: Array, expected: list[Array], tolerance: float
) -> None:
    """Two runs against ONNX Runtime's outputs."""
    runner = package.runner
    assert isinstance(runner, CpuRunner)
    runner.workspace[:] = 255  # NaN: what nobody wrote must not be read
    for _ in range(2):
        outputs = runner.run({name: image}).outputs
        for info, array in zip(runner.outputs, expected, strict=True):
            found = outputs[info.name]
            assert found.shape == array.shape
            scale = float(np.abs(array).max()) + 1e-9
            np.testing.assert_allclose(found / scale, array / scale, atol=tolerance)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 6))]
)
def test_random_networks(seed: int, tmp_path: Path) -> None:
    model, image = random_network(seed)
    check(model, "x", image, tmp_path)


def normalised(width: int, depth: int) -> onnx.ModelProto:
    """LayerNormalization(x @ w + b + r) @ v, with another one behind it."""
    random = np.random.default_rng(7)
    shapes = {"w": (depth, width), "v": (width, depth)}
    arrays = {k: random.standard_normal(s) / np.sqrt(s[0]) for k, s in shapes.items()}
    for name, size in (("b", width), ("g", width), ("s", width), ("h", depth)):
        arrays[name] = random.standard_normal(size)
    node, value = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("MatMul", ["x", "w"], ["xw"], "product"),
        node("Add", ["xw", "b"], ["biased"], "bias"),
        node("Add", ["r", "biased"], ["sum"], "sum"),
        node("LayerNormalization", ["sum", "g", "s"], ["first"], "norm", epsilon=1e-12),
        node("MatMul", ["first", "v"], ["second"], "next"),
        node("LayerNormalization", ["second", "h"], ["y"], "last"),
    ]
    return helper.make_model(
        helper.make_graph(
            nodes,
            "normalised",
            [value("x", 1, (1, 37, depth)), value("r", 1, (1, 37, width))],
            [value("y", 1, (1, 37, depth))],
            [numpy_helper.from_array(a.astype(np.float32), k) for k, a in arrays.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_normalised_sums(offset: float, tmp_path: Path) -> None:
    model, path = normalised(53, 70), tmp_path / "model.onnx"
    onnx.save(model, path)
    random = np.random.default_rng(8)
    feeds = {
        value.name: random.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim])
        for value in model.graph.input
    }
    feeds["r"] += offset
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, feeds)
    package = tilewright.compile(path, target="cpu", directory=tmp_path / "package")
    nodes = [list(kernel.nodes) for kernel in package.manifest.kernels]
    assert nodes == [["product", "sum"], ["norm"], ["next"], ["last"]]
    ours = package.run(feeds)["y"]
    exact = interpret(import_onnx(model).module, import_onnx(model).weights, feeds)["y"]
    # Sums near 300 are rounded by 1.5e-5, beside rows that spread by 1.4.
    np.testing.assert_allclose(ours, exact, atol=2e-4 if offset else 2e-5)
    # ONNX Runtime subtracts the mean's square from the mean of squares.
    np.testing.assert_allclose(ours, theirs, atol=5e-2 if offset else 2e-5)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "mobilenet_v2", "resnet50"])
def test_known_networks(name: str, tmp_path: Path) -> None:
    model = models.build(name)[1]
    check(model, model.graph.input[0].name, models.images(model), tmp_path)


@pytest.mark.parametrize(("channels", "group"), [(4, 1), (16, 16)])
def test_long_windows(channels: int, group: int, tmp_path: Path) -> None:
    """C of a window of hundreds of taps, most of them in padding somewhere, stays short."""
    random = np.random.default_rng(511)
    weight = random.normal(0, 0.05, (16, channels // group, 511)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[255, 255], group=group)
    kind = onnx.TensorProto.FLOAT
    shapes = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, shape in (("x", [1, channels, 600]), ("y", None))
    ]
    graph = helper.make_graph(
        [node], "g", shapes[:1], shapes[1:], [numpy_helper.from_array(weight, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    image = random.normal(size=(1, channels, 600)).astype(np.float32)
    check(model, "x", image, tmp_path)
    longest = max(file.stat().st_size for file in (tmp_path / "package").rglob("src/*.c"))
    assert longest < 20_000
