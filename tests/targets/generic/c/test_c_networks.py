"""Networks as packages of C in every number format: integers bit for bit, floats as checked."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.end_to_end.end_to_end_models import network
from tests.graph.passes.test_equalise import transformer
from tests.slow import but_fast
from tests.targets.generic.c.c_kernels import COMPILERS, with_c
from tests.targets.generic.c.test_c_packages import inputs_of, mobile, residual, tiny, watched

import tilewright
from tilewright.machine.load import load_machine, to_toml
from tilewright.runtime import Executable
from tilewright.targets.generic.c.program import FOLDER
from tilewright.targets.generic.c.runner import CRunner
from tilewright.targets.generic.runner import InstructionRunner

ROOT = Path(__file__).parents[4]
MACHINES = ROOT / "examples" / "machines"
KEYWORDS = ROOT / "tests" / "frontends" / "tensorflow" / "models" / "keyword-spotting.onnx"


def keywords(folder: Path) -> Path:
    """DS-CNN, for one recording."""
    model = onnx.load(KEYWORDS)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, folder / "keywords.onnx")
    return folder / "keywords.onnx"


def encoder(folder: Path) -> Path:
    """A block of attention and a perceptron, with normalisations."""
    transformer(folder / "encoder.onnx")
    return folder / "encoder.onnx"


def mobilenet(folder: Path) -> Path:
    onnx.save(network("mobilenet_v2", 64), folder / "mobilenet_v2.onnx")
    return folder / "mobilenet_v2.onnx"


INTEGERS = {"tiny": tiny, "mobile": mobile, "residual": residual, "keywords": keywords,
            "mobilenet_v2": mobilenet}  # fmt: skip
FLOATS = {
    "tiny in float16": (tiny, "five-buffers", {}),
    "tiny in bfloat16": (tiny, "five-buffers", {"element": "bfloat16"}),
    "tiny in float32": (tiny, "systolic-int8", {"element": "float32", "accumulator": "float32"}),
    "encoder in int8 and float32": (encoder, "mixed", {}),
    "encoder in float16": (encoder, "five-buffers", {}),
}


def compiled(model: Path, machine: str, folder: Path, values: dict[str, Any]) -> Executable:
    described = load_machine(MACHINES / f"{machine}.toml").with_values(values)
    path = folder / f"{machine}-c.toml"
    path.write_text(to_toml(with_c(described)))
    if machine != "mixed":
        return tilewright.compile(model, str(path))
    random, given = np.random.default_rng(0), onnx.load(model).graph.input[0]
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    samples = [{given.name: random.normal(size=shape).astype(np.float32)} for _ in range(4)]
    return tilewright.compile(model, str(path), numbers="int8", calibration=samples)


def kernels_of(package: Executable) -> int:
    return sum(row.engine != "host" for row in package.manifest.kernels)


@pytest.mark.parametrize("name", but_fast(INTEGERS, ["tiny"]))
def test_integers_are_those_of_the_simulator(name: str, tmp_path: Path) -> None:
    package = compiled(INTEGERS[name](tmp_path), "systolic-int8", tmp_path, {})
    assert kernels_of(package) > 2
    runner = package.runner
    assert isinstance(runner, CRunner)
    simulated = InstructionRunner(runner.parts, runner.instruction_set)
    expected = watched(simulated, inputs_of(package, 0))
    assert len(set(expected)) > 4
    for order in (0, 6):
        runner.order = order
        assert watched(runner, inputs_of(package, 0)) == expected


@pytest.mark.parametrize("name", but_fast(FLOATS, ["tiny in float16"]))
def test_floats_are_checked(name: str, tmp_path: Path) -> None:
    make, machine, values = FLOATS[name]
    package = compiled(make(tmp_path), machine, tmp_path, values)
    assert kernels_of(package) > 2
    assert isinstance(package.runner, CRunner)
    inputs = inputs_of(package, 1)
    outputs = package.run(inputs)
    assert package.check(inputs, outputs).equal
    (output,) = (np.asarray(array, np.float32) for array in outputs.values())
    assert np.isfinite(output).all() and np.std(output) > 0


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("machine", but_fast(["mixed", "five-buffers"], ["mixed"]))
def test_a_plain_compiler_has_nothing_to_say(machine: str, compiler: str, tmp_path: Path) -> None:
    """Of the kernels, the header and the functions for the host, in C99."""
    package = compiled(tiny(tmp_path), machine, tmp_path, {})
    folder = package.directory / "program" / FOLDER
    made = subprocess.run(
        ["make", "-C", str(folder), f"CC={compiler}",
         "CFLAGS=-O1 -Wall -Wextra -Werror -pedantic"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
