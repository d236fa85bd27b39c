"""Whole networks as packages of C: every byte of main memory as the simulator leaves it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.slow import but_fast
from tests.targets.generic.c.c_kernels import COMPILERS

import tilewright
from tilewright.machine.load import load_machine
from tilewright.runtime import Executable
from tilewright.targets.generic.c.program import FOLDER
from tilewright.targets.generic.c.runner import CRunner
from tilewright.targets.generic.runner import InstructionRunner

ROOT = Path(__file__).parents[4]
MACHINE = ROOT / "examples" / "machines" / "small-npu-c.toml"
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"


class Network:
    """A small ONNX model, layer by layer."""

    def __init__(self, channels: int, size: int) -> None:
        self.random = np.random.default_rng(channels)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = [1, channels, size, size]
        self.channels = {"x": channels}

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        scale = (2 / max(int(np.prod(shape[1:])), 1)) ** 0.5 if len(shape) > 1 else 0.1
        data = (self.random.normal(size=shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def op(self, kind: str, *inputs: str, channels: int = 0, **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        self.channels[name] = channels or self.channels[inputs[0]]
        return name

    def conv(self, x: str, channels: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        weights = self.weight(channels, self.channels[x] // group, kernel, kernel)
        return self.op(
            *("Conv", x, weights, self.weight(channels)),
            channels=channels,
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
            group=group,
        )

    def save(self, path: Path, output: str, shape: Sequence[int]) -> Path:
        tensor = helper.make_tensor_value_info
        graph = helper.make_graph(
            *(self.nodes, path.stem, [tensor("x", TensorProto.FLOAT, self.shape)]),
            [tensor(output, TensorProto.FLOAT, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, path)
        return path


def mobile(folder: Path) -> Path:
    net = Network(3, 24)
    x = net.op("Clip", net.conv("x", 16, 3, 2), *clip(net))
    for channels, stride in ((24, 1), (40, 2)):
        wide = net.channels[x]
        x = net.op("Clip", net.conv(x, wide, 3, stride, wide), *clip(net))
        x = net.op("Clip", net.conv(x, channels, 1), *clip(net))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    x = net.op("Gemm", x, net.weight(40, 10), net.weight(10))
    return net.save(folder / "mobile.onnx", x, [1, 10])


def clip(net: Network) -> tuple[str, str]:
    for name, value in (("low", 0.0), ("high", 6.0)):
        if all(one.name != name for one in net.weights):
            net.weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
    return "low", "high"


def residual(folder: Path) -> Path:
    net = Network(4, 20)
    x = net.op("Relu", net.conv("x", 24, 3))
    y = net.conv(net.op("Relu", net.conv(x, 24, 3)), 24, 3)
    x = net.op("Tanh", net.op("Relu", net.op("Add", y, x)))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Add", net.conv(x, 32, 3, 2), net.conv(x, 32, 1, 2))
    x = net.op("Flatten", net.op("AveragePool", x, kernel_shape=[5, 5]))
    x = net.op("Gemm", x, net.weight(32, 7), net.weight(7))
    return net.save(folder / "residual.onnx", x, [1, 7])


def tiny(folder: Path) -> Path:
    net = Network(3, 8)
    x = net.op("Tanh", net.op("Relu", net.conv("x", 20, 3)))
    x = net.op("MaxPool", net.op("Add", net.conv(x, 20, 3), x), kernel_shape=[4, 4])
    x = net.op("Gemm", net.op("Flatten", x), net.weight(500, 9), net.weight(9))
    return net.save(folder / "tiny.onnx", x, [1, 9])


def weightless(folder: Path) -> Path:
    """Weights take no bytes, so activations begin where they do."""
    net = Network(20, 8)
    x = net.op("MaxPool", net.op("Tanh", "x"), kernel_shape=[3, 3], pads=[1] * 4)
    x = net.op("Mul", net.op("Sub", x, "x"), "x")
    return net.save(folder / "weightless.onnx", x, [1, 20, 8, 8])


def lenet5(_: Path) -> Path:
    return LENET


NETWORKS = {
    "tiny": tiny,
    "weightless": weightless,
    "lenet5": lenet5,
    "mobile": mobile,
    "residual": residual,
}


@pytest.fixture(scope="module", params=but_fast(NETWORKS, ["tiny", "weightless"]))
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Executable:
    folder = tmp_path_factory.mktemp("network")
    model = NETWORKS[request.param](folder)
    return tilewright.compile(model, str(MACHINE))


def inputs_of(package: Executable, seed: int) -> dict[str, NDArray[Any]]:
    """Normal numbers, or integers from -100 to 99."""
    random = np.random.default_rng(seed)
    return {
        info.name: (
            random.normal(size=[int(n) for n in info.shape])
            if np.dtype(info.dtype).kind == "f"
            else random.integers(-100, 100, [int(n) for n in info.shape])
        ).astype(info.dtype)
        for info in package.inputs
    }


def watched(runner: InstructionRunner, inputs: dict[str, NDArray[Any]]) -> list[bytes]:
    """The activations after every step."""
    seen: list[bytes] = []
    runner.arenas["activations"][:] = 0
    runner.run(inputs, watch=lambda _, arenas: seen.append(arenas["activations"].tobytes()))
    return seen


@pytest.mark.few(1)
def test_memory_is_as_the_simulator_leaves_it(package: Executable) -> None:
    runner = package.runner
    assert isinstance(runner, CRunner)
    simulated = InstructionRunner(runner.parts, runner.instruction_set)
    for seed in range(2):
        expected = watched(simulated, inputs_of(package, seed))
        assert len(set(expected)) > 4
        for order in range(9) if seed == 0 else (0,):
            runner.order = order
            assert watched(runner, inputs_of(package, seed)) == expected
    outputs = package.run(inputs_of(package, 5))
    assert package.check(inputs_of(package, 5), outputs).equal


@pytest.mark.few(1)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_program_runs_a_kernel_on_files(
    package: Executable, compiler: str, tmp_path: Path
) -> None:
    runner = package.runner
    assert isinstance(runner, CRunner)
    program = runner.parts.directory
    shutil.copytree(program / FOLDER, tmp_path / "c")
    made = subprocess.run(
        ["make", f"CC={compiler}", "CFLAGS=-O1 -Wall -Wextra -Werror"],
        cwd=tmp_path / "c",
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (name,) = (p for p in (tmp_path / "c").iterdir() if p.is_file() and not p.suffix
               and p.name != "Makefile")  # fmt: skip
    # The simulator's memory before the last kernel, and after it; of all kernels where some find on
    # the chip what others have left.
    states = [
        b"",
        *watched(InstructionRunner(runner.parts, runner.instruction_set), inputs_of(package, 3)),
    ]
    steps = [n for n, (kind, _) in enumerate(runner.parts.file.steps) if kind == "words"]
    last = len(runner.parts.file.kernels) - 1
    schedules = [entry.schedule for entry in package.manifest.kernels]
    first = 0 if any(" found at " in schedule for schedule in schedules) else last
    held = tmp_path / "activations.bin"
    held.write_bytes(states[steps[first]])
    arguments = [program / "weights.bin", program / "tables.bin", held, str(first), str(last), "4"]
    subprocess.run([name, *arguments], check=True)
    assert held.read_bytes() == states[steps[-1] + 1] != states[steps[first]]


def test_the_same_model_gives_the_same_files(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    texts: list[dict[str, bytes]] = []
    for _ in range(2):
        made = tilewright.compile(model, str(MACHINE))
        place = made.directory / "program" / FOLDER
        files = sorted(path for path in place.rglob("*") if path.is_file())
        texts.append({str(path.relative_to(place)): path.read_bytes() for path in files})
    assert texts[0] == texts[1]
    assert {"include/npu.h", "src/tiny.c", "shim/npu_host.c"} <= texts[0].keys()


def test_small_npu_c_is_small_npu() -> None:
    """The example differs from the other one in its functions alone."""
    plain = load_machine(MACHINE.with_name("small-npu.toml")).to_json()
    found = load_machine(MACHINE).to_json()
    for part in (found, *found["moves"], *found["primitives"]):
        part["c"] = None
    assert found | {"name": plain["name"]} == plain
