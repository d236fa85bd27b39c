"""Gemmini's C interface: networks by examples/gemmini on the host's commands, bit for bit."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.quantised import quantised
from numpy.typing import NDArray
from typer.testing import CliRunner

import tilewright
from benchmarks import models
from tests.end_to_end.end_to_end_models import network
from tests.frontends.onnx.loop_models import recurrent
from tests.targets.generic.c.c_kernels import COMPILERS
from tests.targets.generic.c.test_c_packages import Network, inputs_of, watched
from tilewright.cli.main import app
from tilewright.errors import TilewrightError
from tilewright.machine.load import load_machine
from tilewright.runtime import Executable
from tilewright.targets.generic.c.runner import CRunner
from tilewright.targets.generic.runner import InstructionRunner

ROOT = Path(__file__).parents[2]
GEMMINI = ROOT / "examples" / "gemmini"
FUNCTIONS = (
    GEMMINI / "driver.c",
    GEMMINI / "host" / "gemmini.c",
    GEMMINI / "include" / "gemmini.h",
)


def small(folder: Path) -> Path:
    """Strides, padding, odd channels, one channel, a block of two products, and a last layer."""
    net = Network(3, 11)
    x = net.op("Relu", net.conv("x", 20, 3, 2))
    x = net.op("Relu", net.conv(x, 1, 1))
    x = net.op("Relu", net.conv(x, 33, 5))
    x = net.conv(x, 18, 3, 1)
    x = net.op("Gemm", net.op("Flatten", x), net.weight(18 * 36, 21), net.weight(21))
    return net.save(folder / "small.onnx", x, [1, 21])


def compiled(model: Path, **options: Any) -> Executable:
    return tilewright.compile(model, str(GEMMINI / "gemmini.toml"), **options)


def driven(package: Executable, *files: Path) -> CRunner:
    """The package's runner, with the driver's functions."""
    runner = package.runner
    assert isinstance(runner, CRunner)
    runner.use_functions(files or FUNCTIONS)
    return runner


def products(package: Executable) -> int:
    return sum(row.engine != "host" for row in package.manifest.kernels)


def agrees(package: Executable, inputs: dict[str, NDArray[Any]]) -> None:
    """Every byte of main memory is the simulator's, after every step; outputs the interpreter's."""
    runner = driven(package)
    simulated = InstructionRunner(runner.parts, runner.instruction_set)
    expected = watched(simulated, inputs)
    assert len(set(expected)) > 4
    assert watched(runner, inputs) == expected
    assert package.check(inputs, package.run(inputs)).equal


def test_a_small_network(tmp_path: Path) -> None:
    package = compiled(small(tmp_path))
    assert products(package) == 5
    agrees(package, inputs_of(package, 0))


def test_stores_of_all_channels_at_once(tmp_path: Path) -> None:
    """Where stores are slow they wait for all channels: pixels then take several rows of sums."""
    net = Network(16, 3)
    x = net.op("Relu", net.conv("x", 40, 1))
    model = net.save(tmp_path / "wide.onnx", x, [1, 40, 3, 3])
    values = {"move.mvout.latency": 20_000, "move.mvout.in_flight": 1}
    package = compiled(model, values=values)
    sources = (package.directory / "program" / "c" / "src").glob("*.c")
    assert any(".output_w = 192" in source.read_text() for source in sources)
    agrees(package, inputs_of(package, 1))


@pytest.mark.slow
def test_lenet5() -> None:
    """Fully connected layers whose results leave at once, the last of them in part."""
    package = compiled(ROOT / "examples" / "lenet5" / "lenet5.onnx")
    assert products(package) == 5
    agrees(package, inputs_of(package, 3))


@pytest.mark.slow
def test_one_scale_for_all_channels(tmp_path: Path) -> None:
    given = [{"x": np.random.default_rng(n).normal(size=(1, 3, 11, 11)).astype(np.float32)}
             for n in range(3)]  # fmt: skip
    package = compiled(small(tmp_path), numbers="int8-power-of-two", calibration=given)
    assert products(package) == 5
    agrees(package, inputs_of(package, 2))


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 224])
def test_resnet18(size: int, tmp_path: Path) -> None:
    model = network("resnet18", size)
    onnx.save(model, tmp_path / "resnet18.onnx")
    package = compiled(tmp_path / "resnet18.onnx")
    assert products(package) == 21
    driven(package)
    inputs = {"image": models.images(model, seed=4)}
    outputs = package.run(inputs)
    checked = package.check(inputs, outputs)
    assert checked.equal and checked.max_abs_error == 0, "integers, bit for bit"
    (scores,) = outputs.values()
    assert float(np.std(scores)) > 0
    reasons = {row.reason for row in package.manifest.kernels if row.engine == "host"}
    assert any("computes add_linear" in reason for reason in reasons)
    assert any("computes max_pool" in reason for reason in reasons)


@pytest.mark.slow
def test_zero_points_that_stores_do_not_have(tmp_path: Path) -> None:
    """Sums leave as they are, and the host requantises them."""
    model = onnx.load(small(tmp_path))
    samples = np.random.default_rng(0).normal(size=(3, 1, 3, 11, 11)).astype(np.float32)
    given = quantised(model, samples.reshape(3, 3, 11, 11))
    onnx.save(given, tmp_path / "asymmetric.onnx")
    package = compiled(tmp_path / "asymmetric.onnx")
    assert products(package) == 5
    reasons = {row.reason for row in package.manifest.kernels if row.engine == "host"}
    assert any("conv takes requantise_linear with zero 0, here it is" in r for r in reasons)
    agrees(package, inputs_of(package, 1))


@pytest.mark.slow
def test_the_check_sees_a_driver_that_is_wrong(tmp_path: Path) -> None:
    text = (GEMMINI / "driver.c").read_text()
    package = compiled(small(tmp_path))
    inputs = inputs_of(package, 0)
    right = {name: array.copy() for name, array in package.run(inputs).items()}
    for number, (old, new) in enumerate(
        (("ACCUMULATOR | ADDED | c", "ACCUMULATOR | c"),
         ("p->minimum ? NO_ACTIVATION : RELU", "NO_ACTIVATION"),
         ("how->scale[left - 1]", "how->scale[0]")),
    ):  # fmt: skip
        assert text.count(old) == 1
        wrong = tmp_path / f"driver{number}.c"
        wrong.write_text(text.replace(old, new))
        driven(package, wrong, *FUNCTIONS[1:])
        outputs = package.run(inputs)
        assert any((outputs[name] != right[name]).any() for name in right)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_plain_compiler_has_nothing_to_say(compiler: str, tmp_path: Path) -> None:
    package = compiled(small(tmp_path))
    include = package.directory / "program" / "c" / "include"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
    for source in FUNCTIONS[:2]:
        command = [compiler, *flags, f"-I{include}", f"-I{GEMMINI / 'include'}", "-c", str(source)]
        made = subprocess.run(
            [*command, "-o", str(tmp_path / "made.o")], capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr


@pytest.mark.slow
def test_functions_that_cannot_be(tmp_path: Path) -> None:
    package = compiled(small(tmp_path))
    with pytest.raises(TilewrightError, match="there is no such file"):
        driven(package, tmp_path / "absent.c")
    (tmp_path / "driver.txt").write_text("no C")
    with pytest.raises(TilewrightError, match="is no C file and no header"):
        driven(package, tmp_path / "driver.txt")
    with pytest.raises(TilewrightError, match="headers alone"):
        driven(package, FUNCTIONS[2])
    with pytest.raises(TilewrightError, match=r"two files are called driver\.c"):
        driven(package, FUNCTIONS[0], FUNCTIONS[0])
    driven(package, FUNCTIONS[0], FUNCTIONS[2])
    with pytest.raises(TilewrightError, match="do not link"):
        package.run(inputs_of(package, 0))
    plain = tilewright.compile(small(tmp_path), str(ROOT / "examples/machines/small-npu.toml"))
    with pytest.raises(TilewrightError, match="calls functions of a machine"):
        plain.runner.use_functions(FUNCTIONS)


@pytest.mark.slow
def test_rounds_of_a_recurrent_layer_call_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "gru.onnx"
    onnx.save(recurrent("GRU", length=5), path)
    package = compiled(path, numbers="int8")
    looped = [row for row in package.manifest.kernels if row.rounds == 5]
    assert any(row.engine == "accelerator" for row in looped)
    inputs = inputs_of(package, 0)
    runner = driven(package)
    (loop,) = runner.loops.values()
    assert isinstance(loop.runner, CRunner) and loop.runner.functions == runner.functions
    assert package.check(inputs, package.run(inputs)).equal


def test_the_command_line(tmp_path: Path) -> None:
    package = compiled(small(tmp_path)).save(tmp_path / "package")
    given = [word for file in FUNCTIONS for word in ("--functions", str(file))]
    result = CliRunner().invoke(app, ["run", str(package), "--random", "1", "--check", *given])
    assert result.exit_code == 0, result.output
    assert "largest error 0, 0 mismatches" in result.output


def test_the_machine_is_gemmini_s() -> None:
    machine = load_machine(GEMMINI / "gemmini.toml")
    assert machine.memory("scratchpad").bytes == 4 * 4096 * 16
    assert machine.memory("accumulator").bytes == 1024 * 16 * 4
