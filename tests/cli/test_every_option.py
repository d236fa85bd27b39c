"""Every option of every command, alone, on a model and on a package: it works, or has a code.

The options are read off the commands, so an option without an example here fails a test.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner, Result

from tests.slow import but_fast
from tilewright.cli.main import COMMANDS, app, command

EXAMPLES = Path(__file__).parents[2] / "examples"
LENET = EXAMPLES / "lenet5" / "lenet5.onnx"
HLAL = EXAMPLES / "hlal" / "two_layers.hlal"


@dataclass(frozen=True)
class Files:
    """What the examples name."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def package(self) -> Path:
        return self.folder / "package"

    def example(self, text: str) -> list[str]:
        """The arguments of an example, in which ``@`` is the folder."""
        return [part.replace("@", str(self.folder)) for part in text.split()]


def convolution() -> onnx.ModelProto:
    """One small convolution and its ReLU."""
    random = np.random.default_rng(3)
    weights = random.standard_normal((4, 2, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node("Relu", ["c"], ["y"], name="relu"),
        ],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 6, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, 4, 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """A model, its package, its inputs, and files of every other kind that options take."""
    made = Files(tmp_path_factory.mktemp("options"))
    onnx.save(convolution(), made.model)
    image = np.random.default_rng(4).standard_normal((1, 2, 6, 6)).astype(np.float32)
    np.save(made.folder / "x.npy", image)
    np.savez(made.folder / "x.npz", x=image)
    np.savez(made.folder / "unnamed.npz", image)
    np.save(made.folder / "fc1_out.npy", np.zeros((1, 1, 1, 256), np.float32))
    (made.folder / "measured.db").touch()
    (made.folder / "rows.csv").write_text("memory.sram.bytes,predicted_cycles\n1,2\n2,1\n")
    np.savez(made.folder / "samples.npz", x=np.stack([image[0], image[0] * 2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(made.folder / "cache"))
        arguments = ("compile", made.model, "-t", "cambricon-x", "-o", made.package, "-q")
        assert call(*arguments).exit_code == 0
        shutil.copy(HLAL, made.folder / "program.hlal")
        shutil.copy(EXAMPLES / "import" / "zigzag.yaml", made.folder / "array.yaml")
        shutil.copy(EXAMPLES / "llm" / "tiny.gguf", made.folder / "tiny.gguf")
        language = ("llm", made.folder / "tiny.gguf", "-o", made.folder / "language", "-q")
        assert call(*language).exit_code == 0
        assert call("compile", made.model, "--emit", "tile", "-o", made.folder / "k.mlir", "-q")
        yield made


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


BASE = {
    "compile": "compile @/model.onnx -o @/out -t cambricon-x",
    "run": "run @/model.onnx",
    "plan": "plan @/model.onnx -t cambricon-x",
    "sweep": "sweep @/model.onnx -t cambricon-x --vary clock_hz=5e8,6e8 -o @/sweep.csv",
    "fuse": "fuse @/model.onnx -t zu2",
    "explain": "explain @/model.onnx -t cambricon-x",
    "diff": "diff @/model.onnx -t cambricon-x",
    "replay": "replay @/model.onnx -t cambricon-x",
    "memory": "memory @/model.onnx",
    "llm": "llm @/tiny.gguf -o @/language-too",
    "generate": "generate @/language --tokens 1,2 --count 2",
    "quantise": "quantise @/model.onnx --numbers int8 --calibration @/samples.npz",
    "report": "report @/model.onnx -t cambricon-x -o @/report.html",
    "bench": "bench @/model.onnx -t cambricon-x",
    "cache": "cache",
    "tune": "tune @/model.onnx --database @/tuned.json --seconds 0.01",
    "calibrate": "calibrate -o @/calibration.json",
    "dlplib": "dlplib -o @/dlplib",
    "targets": "targets cambricon-x",
    "import-machine": "import-machine @/array.yaml -o @/machine.toml",
    "opt": "opt --list",
    "asm": "asm @/program.hlal -t cambricon -o @/words.bin",
    "disasm": "disasm @/package",
    "trace": "trace @/program.hlal --random 1 -o @/hlal.json",
}
"""A call of each command that works."""

ANYWHERE = {
    "--target": "--target cambricon-x",
    "--output": "--output @/COMMAND.json",
    "--numbers": "--numbers int8 --calibration @/samples.npz -t cpu",
    "--calibration": "--numbers int8 --calibration @/samples.npz -t cpu",
    "--preprocess": "--preprocess size=6x6 --calibration @/samples.npz",
    "--observer": "--numbers int8 --calibration @/samples.npz -t cpu --observer percentile",
    "--keep-float": "--numbers int8 --calibration @/samples.npz -t cpu --keep-float relu",
    "--equalise": "--numbers int8 --calibration @/samples.npz -t cpu --equalise",
    "--shape": "--shape x=1x2x6x6",
    "--constant": "--constant size=1",
    "--caffemodel": "--caffemodel @/weights.caffemodel",
    "--set": "--set clock_hz=500000000",
    "--exact-convolution": "--exact-convolution",
    "--planner": "--planner greedy -t cambricon-x",
    "--threads": "--threads 2 -t cpu",
    "--no-cache": "--no-cache",
    "--json": "--json",
    "--quiet": "--quiet",
    "--kernels": "--kernels",
    "--input": "--input @/x.npz",
    "--random": "--random 3",
    "--exact-memory": "--exact-memory",
    "--database": "--database @/measured.db",
    "--limit": "--limit 100000",
    "--no-barriers": "--no-barriers",
    "--samples": "--samples 4",
    "--trust-library": "--trust-library",
}
"""Arguments that show an option, wherever a command has it."""

OWN = {
    ("bench", "--repeat"): "--repeat 2",
    ("cache", "--clear"): "--clear",
    ("compile", "--bare"): "--bare -t cpu",
    ("compile", "--build"): "--build -t cpu",
    ("compile", "--cpu"): "--cpu portable -t cpu",
    ("compile", "--dump"): "--dump @/dumps",
    ("compile", "--emit"): "--emit tile -o @/text.mlir",
    ("compile", "--name"): "--name net -t cpu",
    ("compile", "--weights"): "--weights array -t cpu",
    ("compile", "--database"): "--database @/measured.db -t cpu",
    ("diff", "--float"): "--no-float",
    ("diff", "--reference"): "--reference onnxruntime",
    ("diff", "--save"): "--save @/both.npz",
    ("diff", "--tolerance"): "--tolerance 0.1",
    ("explain", "--operators"): "--operators",
    ("fuse", "--cost"): "--cost simulated",
    ("fuse", "--pattern"): "--pattern conv->max_pool",
    ("fuse", "--search"): "--search paths",
    ("generate", "--count"): "--count 3",
    ("generate", "--prompt"): "--prompt text",
    ("generate", "--seed"): "--seed 3",
    ("generate", "--temperature"): "--temperature 0.5",
    ("generate", "--tokens"): "--tokens 3,4",
    ("import-machine", "--element"): "--element fixed16",
    ("import-machine", "--output"): "--output @/array.toml",
    ("llm", "--chunk"): "--chunk 8",
    ("llm", "--context"): "--context 32",
    ("llm", "--quantise"): "--quantise q8_0",
    ("llm", "--cpu"): "--cpu portable",
    ("llm", "--name"): "--name net",
    ("llm", "--output"): "--output @/language-other",
    ("memory", "--svg"): "--svg @/memory.svg",
    ("opt", "--list"): "--list",
    ("opt", "--passes"): "-p place-moves @/kernel.mlir",
    ("opt", "--weights"): "--weights @/weights.safetensors @/kernel.mlir",
    ("plan", "--beside"): "--beside greedy",
    ("report", "--sweep"): "--sweep @/rows.csv",
    ("run", "--check"): "--check --random 1",
    ("run", "--functions"): "--functions @/model.onnx --random 1",
    ("run", "--model"): "--model @/model.onnx --check --random 1",
    ("run", "--engine"): "--engine DLP",
    ("run", "--trace"): "--trace @/trace.json -t cambricon-x",
    ("sweep", "--effort"): "--effort full",
    ("sweep", "--jobs"): "--jobs 2",
    ("sweep", "--numbers"): "--numbers fixed16",
    ("sweep", "--objective"): "--objective=-cycles --objective clock_hz",
    ("sweep", "--on"): "--on somewhere",
    ("sweep", "--output"): "--output @/rows.csv",
    ("sweep", "--samples"): "--samples 1 --search random",
    ("sweep", "--search"): "--search random",
    ("sweep", "--seed"): "--seed 5 --search random",
    ("sweep", "--vary"): "--vary memory.sb.bytes=32K..64K:2x",
    ("tune", "--jobs"): "--jobs 1",
    ("tune", "--seconds"): "--seconds 0.02",
    ("asm", "--target"): "--target cambricon",
    ("quantise", "--target"): "--target cpu",
    ("trace", "--input"): "--input fc1_out=@/fc1_out.npy",
    ("trace", "--target"): "--target cambricon",
    ("tune", "--cluster"): "--cluster tcp://127.0.0.1:1",
    ("asm", "--listing"): "--listing @/listing.txt",
}
"""The same, of options that one command has or that mean something of their own there."""

REFUSED = {
    "--cluster": "option-cluster",
    "--caffemodel": "model-weights",
    "--constant": "input-name",
    "--engine": "option-engine",
    "--functions": "option-functions",
    "--limit": "option-hlal",
    "--model": "option-package",
    "--no-barriers": "option-hlal",
    "--on": "sweep-cluster",
    "--operators": "option-model",
    "--preprocess": "calibration-file",
    "--prompt": "option-prompt",
    "--trust-library": "option-trust",
}
"""Options that are for other models than the example, and the code that says so."""


def options_of(name: str) -> list[str]:
    """The options of a command, each by its long name."""
    options = [item for item in command(name).params if item.param_type_name == "option"]
    return [max(item.opts, key=len) for item in options]


EVERY = [(name, option) for name in COMMANDS for option in options_of(name)]


def test_every_option_has_an_example() -> None:
    missing = [
        (name, option)
        for name, option in EVERY
        if (name, option) not in OWN and option not in ANYWHERE
    ]
    assert not missing and BASE.keys() == COMMANDS.keys()
    assert not [pair for pair in OWN if pair not in EVERY]


def outcome(result: Result) -> str:
    """What a call came to: "" where it worked, else the code of what was refused."""
    if result.exit_code == 0:
        return ""
    assert result.exit_code == 2, (result.output, result.exception)
    assert "Traceback" not in result.output
    code = re.search(r"error \[([a-z0-9-]+)\]|\"code\": \"([a-z0-9-]+)\"", result.output)
    assert code, result.output
    return code[1] or code[2]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), EVERY)
def test_each_option_works(name: str, option: str, files: Files) -> None:
    example = OWN.get((name, option)) or ANYWHERE[option]
    example = example.replace("COMMAND", name)
    result = call(*files.example(BASE[name]), *files.example(example))
    assert outcome(result) == ("" if name in ("asm", "trace") else REFUSED.get(option, ""))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "option"), [(n, o) for n, o in EVERY if n in ("run", "bench", "disasm")]
)
def test_each_option_works_on_a_package_or_is_refused(name: str, option: str, files: Files) -> None:
    example = OWN.get((name, option)) or ANYWHERE[option]
    outcome(call(name, files.package, *files.example(example)))


USELESS = {
    "run @/package --threads 2": "option-threads",
    "bench @/model.onnx -t cambricon-x --threads 2": "option-threads",
    "run @/model.onnx --input @/x.npz --random 1": "option-input",
    "compile @/model.onnx --database @/none.db -o @/useless": "tuning-database",
    "compile @/model.onnx -t cambricon-x --build -o @/useless": "option-form",
    "run @/program.hlal --random 1 --threads 2": "option-hlal",
    "run @/program.hlal --random 1 --kernels": "option-hlal",
    "run @/program.hlal --random 1 --functions @/model.onnx": "option-hlal",
    "run @/model.prototxt --engine DLP --trust-library": "option-engine",
    "run @/model.prototxt --engine DLP --no-barriers": "option-engine",
}
"""Calls with an option that would change nothing, and the code that says so."""


@pytest.mark.parametrize("arguments", USELESS)
def test_options_that_would_change_nothing_are_refused(arguments: str, files: Files) -> None:
    assert outcome(call(*files.example(arguments), "--quiet")) == USELESS[arguments]
    assert not (files.folder / "useless").exists() and not (files.folder / "none.db").exists()


@pytest.mark.few(4)
@pytest.mark.parametrize("name", but_fast(["run", "diff", "replay", "bench"], ["run", "diff"]))
@pytest.mark.parametrize("given", ["x.npy", "x=@/x.npy", "x.npz", "x=@/x.npz", "unnamed.npz"])
def test_inputs_come_from_files_of_either_kind(name: str, given: str, files: Files) -> None:
    given = given if given.startswith("x=") else f"@/{given}"
    result = call(
        *files.example(BASE[name]), "-t", "cambricon-x", *files.example(f"--input {given}")
    )
    assert outcome(result) == ""
