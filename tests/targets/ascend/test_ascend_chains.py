"""Kernels that cores compute tile by tile as one: several computes of the cube in a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.sunway.sunway_networks import Network

import tilewright
from tilewright.runtime.executable import Executable
from tilewright.targets.ascend.network import CHAIN_GAIN, CHAINS
from tilewright.targets.ascend.runner import AscendRunner

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
            "3x3 convolution 16 to 32, 112 x 112, and a 3x3 pool, stride 2",
            (1, 16, 112, 112),
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
            "1x1 convolution 16 to 96, 112 x 112, and a depthwise 3x3, stride 2",
            (1, 16, 112, 112),
            pointwise_depthwise(16, 96, 2),
            {},
        ),
        Case("2,048 x 64 by 64 x 64, and by 64 x 64", (2048, 64), products(64, 64, 64), {}),
        Case("8,192 x 64 by 64 x 128, and by 128 x 64", (8192, 64), products(64, 128, 64), {}),
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
        assert executable.check({"x": given}, found).equal
        kernels = [kernel for kernel in executable.profile.kernels if kernel.nodes]
        assert len(kernels) == len(bounds(executable)) == count
        numbers += [round(sum(kernel.cycles or 0 for kernel in kernels))]
        numbers += [
            sum(kernel.dram_bytes or 0 for kernel in kernels),
            round(sum(bounds(executable))),
        ]
        results += found.values()
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
    assert line in README.read_text()


@pytest.mark.parametrize(
    "shape",
    but_fast([(3, 3, 20, 13, 2, 33, 17), (1, 3, 17, 9, 1, 40, 5), (5, 3, 4, 11, 3, 16, 16)], []),
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
