"""Kernels that cores compute tile by tile as one: several computes of the cube in a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.slow import but_fast
from tests.targets.sunway.sunway_networks import Network

import tilewright
from tilewright.runtime.executable import Executable
from tilewright.targets.ascend.network import CHAIN_GAIN, CHAINS
from tilewright.targets.ascend.runner import AscendRunner
from tilewright.targets.ascend.vector_primitives import vector_primitives

README = Path(tilewright.__file__).parent / "targets" / "ascend" / "README.md"

APART: Mapping[str, Any] = {"fusion": "off"}


@dataclass(frozen=True)
class Case:
    """Two layers, as the README's table names them."""

    about: str
    shape: tuple[int, ...]
    layers: Callable[[Network], str]
    values: Mapping[str, Any]


def convolutions(inputs: int, between: int, outputs: int, *kernels: int) -> Callable[..., str]:
    def layers(net: Network) -> str:
        x = net.op("Relu", net.conv("x", inputs, between, kernels[0]))
        return net.op("Relu", net.conv(x, between, outputs, kernels[1]))

    return layers


def depthwise_pointwise(channels: int, outputs: int) -> Callable[[Network], str]:
    def layers(net: Network) -> str:
        x = net.op("Relu", net.conv("x", channels, channels, 3, 1, channels))
        return net.op("Relu", net.conv(x, channels, outputs, 1))

    return layers


def pointwise_depthwise(channels: int, between: int, stride: int) -> Callable[[Network], str]:
    def layers(net: Network) -> str:
        x = net.op("Relu", net.conv("x", channels, between, 1))
        return net.clip(net.conv(x, between, between, 3, stride, between))

    return layers


def pooled(
    inputs: int, outputs: int, kernel: int, window: int, stride: int, pads: int = 0
) -> Callable[[Network], str]:
    def layers(net: Network) -> str:
        x = net.op("Relu", net.conv("x", inputs, outputs, kernel))
        sizes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pads] * 4}
        return net.op("MaxPool", x, **sizes)

    return layers


def products(depth: int, between: int, outputs: int) -> Callable[[Network], str]:
    def layers(net: Network) -> str:
        x = net.op("Relu", net.op("MatMul", "x", net.weight(depth, between)))
        return net.op("MatMul", x, net.weight(between, outputs))

    return layers


CASES = {
    case.about: case
    for case in (
        Case(
            "3x3 convolution 16 to 32, 32 x 32, and a 2x2 pool",
            (1, 16, 32, 32),
            pooled(16, 32, 3, 2, 2),
            {},
        ),
        Case(
            "3x3 convolution 16 to 32, 56 x 56, and a 3x3 pool, stride 2",
            (1, 16, 56, 56),
            pooled(16, 32, 3, 3, 2, 1),
            {},
        ),
        Case(
            "1x1 convolution 32 to 64, 28 x 28, and a 1x1 to 32",
            (1, 32, 28, 28),
            convolutions(32, 64, 32, 1, 1),
            {},
        ),
        Case(
            "depthwise 3x3 of 64, 6 x 6, and a 1x1 to 32, 64 images",
            (64, 64, 6, 6),
            depthwise_pointwise(64, 32),
            {},
        ),
        Case(
            "1x1 convolution 16 to 96, 56 x 56, and a depthwise 3x3, stride 2",
            (1, 16, 56, 56),
            pointwise_depthwise(16, 96, 2),
            {},
        ),
        Case("2,048 x 64 by 64 x 64, and by 64 x 64", (2048, 64), products(64, 64, 64), {}),
    )
}


def compiled(path: Path, **values: Any) -> Executable:
    return tilewright.compile(path, target="ascend910", values=values)


def bounds(executable: Executable) -> list[float]:
    """The granule bound of each kernel of the layers."""
    return [entry.granule_bound or 0 for entry in executable.manifest.kernels if entry.nodes]


def row(case: Case, folder: Path) -> list[int]:
    """Cycles, bytes and granule bounds of the layers as one kernel, and apart."""
    path = folder / "model.onnx"
    net = Network(*case.shape)
    net.save(path, case.layers(net))
    numbers: list[int] = []
    results: list[NDArray[np.float32]] = []
    for count, values in ((1, {}), (2, APART)):
        executable = compiled(path, **case.values, **values)
        given = np.random.default_rng(5).normal(size=case.shape).astype(np.float32)
        found = executable.run({"x": given}, profile=True)
        kernels = [kernel for kernel in executable.profile.kernels if kernel.nodes]
        assert len(kernels) == len(bounds(executable)) == count
        numbers += [round(sum(kernel.cycles or 0 for kernel in kernels))]
        numbers += [
            sum(kernel.dram_bytes or 0 for kernel in kernels),
            round(sum(bounds(executable))),
        ]
        results += found.values()
        if count == 1:
            assert executable.check({"x": given}, found).equal
            runner = executable.runner
            assert isinstance(runner, AscendRunner)
            for order in (1, 12):
                runner.order = order
                again = executable.run({"x": given})
                assert all(np.array_equal(again[name], found[name]) for name in found)
    # What is handed on is rounded to halves, as it is in main memory.
    np.testing.assert_array_equal(results[0], results[1])
    return numbers


@pytest.mark.parametrize("about", but_fast(CASES, []))
def test_a_chain_is_one_kernel_that_takes_less(about: str, tmp_path: Path) -> None:
    """Of time, of main memory, and as the README says."""
    cycles, moved, bound, *apart = row(CASES[about], tmp_path)
    assert cycles < apart[0]
    assert moved < apart[1]
    assert bound <= cycles
    numbers = (cycles, apart[0], moved, apart[1], bound, apart[2])
    line = f"| {about} | {' | '.join(f'{number:,}' for number in numbers)} |"
    assert line in README.read_text(), line


@pytest.mark.parametrize(
    "shape",
    but_fast([(3, 3, 20, 13, 2, 33, 17), (5, 3, 4, 11, 3, 16, 16)], []),
)
def test_shapes_that_nothing_divides(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Several images, channels and rows that are no whole blocks, and tiles at all borders."""
    first, second, inputs, size, images, between, outputs = shape
    net = Network(images, inputs, size, size)
    layers = convolutions(inputs, between, outputs, first, second)
    net.save(path := tmp_path / "model.onnx", layers(net))
    executable = compiled(path, cores=2)
    given = {"x": np.random.default_rng(3).normal(size=net.shape).astype(np.float32)}
    found = executable.run(given)
    assert executable.check(given, found).equal


@pytest.mark.slow
@pytest.mark.parametrize("pads", but_fast([0, 1], [1]))
def test_pools_at_all_borders(pads: int, tmp_path: Path) -> None:
    """Several images, channels that are no whole blocks, rows that no tile divides; what is no
    number takes no part."""
    net = Network(3, 5, 15, 15)
    net.save(path := tmp_path / "model.onnx", pooled(5, 20, 1, 3, 2, pads)(net))
    executable = compiled(path, cores=2)
    assert len(bounds(executable)) == 1
    x = np.random.default_rng(3).normal(size=net.shape).astype(np.float32)
    for value in (0.0, np.nan):
        x[1, 2, 3:5, 7] = value
        found = executable.run({"x": x})
        assert executable.check({"x": x}, found).equal


@pytest.mark.slow
def test_a_value_that_a_chain_reads_in_two_ways(tmp_path: Path) -> None:
    """Its input is added to its result: one value of the network, two operands of the kernel."""
    net = Network(2048, 64)
    x = net.op("Relu", net.op("MatMul", "x", net.weight(64, 64)))
    total = net.op("Add", net.op("MatMul", x, net.weight(64, 64)), "x")
    net.save(path := tmp_path / "model.onnx", total)
    executable = compiled(path)
    given = {"x": np.random.default_rng(7).normal(size=net.shape).astype(np.float32)}
    results = executable.run(given)
    assert len(bounds(executable)) == 1
    assert executable.check(given, results).equal


def test_what_is_predicted_to_gain_little_stays_apart(tmp_path: Path) -> None:
    """All columns of two products of few rows are computed by as many cores apart."""
    net = Network(64, 96)
    net.save(path := tmp_path / "model.onnx", products(96, 128, 80)(net))
    assert len(bounds(compiled(path))) == 2
    assert 0 < CHAIN_GAIN < 1
    assert "product -> product" in CHAINS


ATTENTIONS = {
    "attention of 8 heads, 128 x 64 by 128 keys": (8, 128, 64, False),
    "the same with a mask of keys": (8, 128, 64, True),
    "attention of 4 heads, 197 x 64 by 197 keys": (4, 197, 64, False),
}
"""Heads, queries and keys, elements of each, and whether some keys are hidden."""


def attention(path: Path, heads: int, rows: int, size: int, *, masked: bool) -> Path:
    """Products with keys, scaled, their softmax, and products with values."""
    shape = [1, heads, rows, size]
    nodes = [
        helper.make_node("Transpose", ["k"], ["turned"], "turn", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"], "scores"),
        helper.make_node("Mul", ["scores", "factor"], ["scaled"], "scale"),
        helper.make_node("Add", ["scaled", "hidden"], ["masked"], "mask"),
        helper.make_node("Softmax", ["masked" if masked else "scaled"], ["weights"], "softmax"),
        helper.make_node("MatMul", ["weights", "v"], ["y"], "mixed"),
    ]
    hidden = np.where(np.arange(rows) % 5 == 3, -1e4, 0).astype(np.float32)
    constants = {"factor": np.float32(size**-0.5), "hidden": hidden.reshape(1, 1, 1, rows)}
    graph = helper.make_graph(
        [node for node in nodes if masked or node.name != "mask"],
        "attention",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


STEPS = {"scores", "scale", "mask", "softmax", "mixed"}


@pytest.mark.slow_cases(1)
@pytest.mark.parametrize("about", but_fast(ATTENTIONS, []))
def test_attention_is_one_kernel_that_takes_less(
    about: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than its products and its softmax with scores in main memory, and as the README says."""
    heads, rows, size, masked = ATTENTIONS[about]
    path = attention(tmp_path / "model.onnx", heads, rows, size, masked=masked)
    random = np.random.default_rng(5)
    given = {name: random.normal(size=(1, heads, rows, size)).astype(np.float32) for name in "qkv"}
    q, k, v = (array.astype(np.float16).astype(np.float64) for array in given.values())
    scores = q @ k.swapaxes(2, 3) * size**-0.5
    scores[..., 3::5] -= 1e4 if masked else 0
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    numbers: list[int] = []
    for one in (True, False):
        executable = compiled(path) if one else _compiled_apart(path, monkeypatch)
        names = {"mixed"} if one else STEPS
        found = executable.run(given, profile=True)
        kernels = [kernel for kernel in executable.profile.kernels if names & {*kernel.nodes}]
        entries = [e for e in executable.manifest.kernels if names & {*e.nodes}]
        assert len(kernels) == len(entries) == (1 if one else 4 + masked)
        numbers += [round(sum(kernel.cycles or 0 for kernel in kernels))]
        numbers += [sum(kernel.dram_bytes or 0 for kernel in kernels)]
        numbers += [round(sum(entry.granule_bound or 0 for entry in entries))]
        if one:
            assert executable.check(given, found).equal
            most = 2.0**-11 * (
                weights / weights.sum(-1, keepdims=True) @ np.abs(v) + np.abs(wanted)
            )
            assert (np.abs(found["y"] - wanted) <= 1.1 * most + 1e-4).all()
            runner = executable.runner
            assert isinstance(runner, AscendRunner)
            for order in (1, 12):
                runner.order = order
                assert np.array_equal(executable.run(given)["y"], found["y"])
            if masked:
                single = compiled(path, cores=1)
                np.testing.assert_array_equal(single.run(given)["y"], found["y"])
    cycles, moved, bound, *apart = numbers
    assert cycles < apart[0]
    assert moved < apart[1]
    assert bound <= cycles
    figures = (cycles, apart[0], moved, apart[1], bound, apart[2])
    line = f"| {about} | {' | '.join(f'{number:,}' for number in figures)} |"
    assert line in README.read_text(), line


def _compiled_apart(path: Path, monkeypatch: pytest.MonkeyPatch) -> Executable:
    """The model on a machine that does not know attention as one operation."""
    known = [p for p in vector_primitives() if p.name != "attention"]
    with monkeypatch.context() as patch:
        patch.setattr("tilewright.targets.ascend.network.vector_primitives", lambda: tuple(known))
        return compiled(path, **APART)
