"""Targets outside the repository: words with flags, and C for an asynchronous API."""

import ast
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.examples.installed import EXAMPLES, installed
from tests.examples.networks import attention, residual_block
from tests.test_docs import commands
from tilewright.cli.main import app
from tilewright.codegen.c.compiler import find_compiler
from tilewright.compiler import api as compiling
from tilewright.errors import TilewrightError
from tilewright.runtime import Executable
from tilewright.system.choices import target_names
from tilewright.targets.base import Target, find_target

NAMES = ("heron", "tern")
LENET = EXAMPLES.parent / "lenet5" / "lenet5.onnx"


@pytest.fixture(scope="module", autouse=True)
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with (
        installed("heron", tmp_path_factory.mktemp("heron")),
        installed("tern", tmp_path_factory.mktemp("tern")),
    ):
        yield


def model(network: str, folder: Path) -> Path:
    made: dict[str, Callable[[Path], Path]] = {"block": residual_block, "attention": attention}
    return LENET if network == "lenet5" else made[network](folder / f"{network}.onnx")


@cache
def compiled(name: str, network: str, folder: Path) -> Executable:
    return compiling.compile(model(network, folder), name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def inputs_of(executable: Executable, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {
        info.name: generator.normal(0, 1, info.shape).astype(info.dtype)
        for info in executable.runner.inputs
    }


def chained(executable: Executable) -> list[tuple[str, ...]]:
    """The nodes of kernels that compute several operations from one another."""
    return [entry.nodes for entry in executable.manifest.kernels if "; from " in entry.schedule]


def staying(executable: Executable) -> list[str]:
    """The kernels whose results stay on the chip."""
    parts: Any = executable.runner
    return [row.symbol for row in parts.parts.file.kernels if row.stays is not None]


def run_twice(executable: Executable) -> None:
    """Runs on two inputs, searched for races, against the interpreter bit for bit."""
    seen: list[bytes] = []
    for seed in range(2):
        inputs = inputs_of(executable, seed)
        outputs = executable.run(inputs, check_races=True)
        check = executable.check(inputs, outputs)
        assert check.exact and check.mismatches == 0 and check.passed
        seen.append(b"".join(output.tobytes() for output in outputs.values()))
    assert len(set(seen)) == 2
    profile = executable.profile
    kernels = [kernel for kernel in profile.kernels if not kernel.on_host]
    assert profile.cycles and sum(k.cycles or 0 for k in kernels) == pytest.approx(
        profile.cycles, abs=1
    )


@pytest.mark.parametrize("name", NAMES)
def test_they_are_found_and_small(name: str) -> None:
    assert name in target_names()
    target = find_target(name)
    assert isinstance(target, Target) and target.machine().name == name
    lines = 0
    for path in sorted((EXAMPLES / name).rglob("*.py")):
        text = path.read_text()
        lines += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                target_room = node.module.startswith("tilewright.targets.")
                assert not target_room or node.module == "tilewright.targets.base", (
                    f"{path} imports from another target"
                )
                assert not any(alias.name.startswith("_") for alias in node.names)
    assert lines <= 400


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NAMES)
def test_attention_is_one_kernel(name: str, folder: Path) -> None:
    executable = compiled(name, "attention", folder)
    run_twice(executable)
    assert ("MatMul_11", "Softmax_12", "MatMul_13") in chained(executable)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_lenet_has_chains_and_results_that_stay(name: str, folder: Path) -> None:
    executable = compiled(name, "lenet5", folder)
    run_twice(executable)
    # On tern the first convolution and its pool are 0.4 % faster apart.
    chain = {"tern": ("fc3", "softmax"), "heron": ("conv1", "relu1", "pool1")}[name]
    assert chain in chained(executable)
    assert staying(executable)
    left = [entry for entry in executable.manifest.kernels if " stays at " in entry.schedule]
    assert left, "the plan says what stays"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_residual_block(name: str, folder: Path) -> None:
    executable = compiled(name, "block", folder)
    run_twice(executable)
    assert any("Add_6" in k.nodes and not k.on_host for k in executable.profile.kernels)
    if name == "tern":
        assert ("Conv_2", "Relu_3", "Conv_4") in chained(executable)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_value_between_kernels_is_right(name: str) -> None:
    """What stays on the chip is looked at, too."""
    arguments = ["diff", str(LENET), "--target", name, "--random", "1", "--quiet"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_the_walk_through_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the page that says how they are made."""
    root = EXAMPLES.parents[1]
    shutil.copytree(root / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    page = root / "CONTRIBUTING.md"
    wanted = [arguments for arguments in commands(page) if "lenet5" in " ".join(arguments)]
    assert len(wanted) == 7
    for arguments in wanted:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"tilewright {' '.join(arguments)}\n{result.output}"
        if arguments[0] == "plan":
            assert " stays at " in result.output and "; from " in result.output
    _, _, section = page.read_text().partition("## A target outside")
    section, _, _ = section.partition("\n## ")
    named = set(re.findall(r"`(?:api/)?(\w+\.(?:py|toml|h|c))`", section))
    suffixes = (".py", ".toml", ".h", ".c")
    for name in NAMES:
        files = {p.name for p in (EXAMPLES / name).rglob("*.*") if p.suffix in suffixes}
        assert files - named == {"__init__.py"}


def damaged(executable: Executable, tmp_path: Path) -> Path:
    return Path(shutil.copytree(executable.runner.parts.directory, tmp_path / "program"))  # type: ignore[attr-defined]


def reported(name: str, program: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether a program is refused, or gives other results."""
    runner = find_target(name).load(program)
    try:
        outputs = runner.run(inputs, check_races=True).outputs
    except TilewrightError as error:
        assert error.problems[0].code in ("simulate-race", "program-deadlock", "program-event")
        return True
    return any(outputs[key].tobytes() != expected[key].tobytes() for key in expected)


FEW_AND_ALL = [4, pytest.param(None, marks=pytest.mark.slow)]


@pytest.mark.parametrize("most", FEW_AND_ALL)
def test_each_flag_of_the_words_is_needed(most: int | None, folder: Path, tmp_path: Path) -> None:
    """Take the flags of attention's words away, one by one."""
    executable, target = compiled("tern", "attention", folder), find_target("tern")
    machine, inputs = target.machine(), inputs_of(executable, 0)
    expected = executable.run(inputs)
    program = damaged(executable, tmp_path)
    words, size = (program / "program.bin").read_bytes(), target.word_bytes(machine)
    text = target.disassemble(words, machine)
    assert target.assemble(text, machine) == words
    lines = [line for line in text.splitlines() if line]
    flags = [n for n, line in enumerate(lines) if line.split()[0] in ("set", "await")]
    assert len(flags) > 20 and len(lines) * size == len(words)
    # A word that moves nothing stands in its place: kernels keep theirs.
    nothing = target.assemble("load_tile size0=0", machine)
    for at in flags[:: len(flags) // most if most else 1]:
        changed = words[: at * size] + nothing + words[(at + 1) * size :]
        (program / "program.bin").write_bytes(changed)
        assert reported("tern", program, inputs, expected), f"{at}: {lines[at]}"


@pytest.mark.parametrize("most", FEW_AND_ALL)
def test_each_wait_of_the_c_is_needed(most: int | None, folder: Path, tmp_path: Path) -> None:
    """Take the waits of attention's C away, one by one."""
    executable = compiled("heron", "attention", folder)
    inputs = inputs_of(executable, 0)
    expected = executable.run(inputs)
    program = damaged(executable, tmp_path)
    source = program / "c" / "src" / "network.c"
    text = source.read_text()
    waits = list(re.finditer(r"heron_wait\([^;]*;", text))
    assert len(waits) > 4
    for wait in waits[:: len(waits) // (most // 2) if most else 1]:
        source.write_text(text[: wait.start()] + text[wait.end() :])
        assert reported("heron", program, inputs, expected), wait.group()


def test_the_api_builds_with_a_plain_compiler(tmp_path: Path) -> None:
    api = EXAMPLES / "heron" / "heron_target" / "api"
    command = [*find_compiler(), "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", "-O1"]
    subprocess.run([*command, str(api / "heron.c"), "-o", str(tmp_path / "heron.o")], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", range(3))
def test_copies_happen_late(ahead: int, folder: Path) -> None:
    """Whatever queue runs ahead of the others, results are the same."""
    executable = compiled("heron", "lenet5", folder)
    inputs = inputs_of(executable, 5)
    runner: Any = executable.runner
    before, runner.first = runner.first, ahead
    try:
        outputs = executable.run(inputs)
    finally:
        runner.first = before
    assert executable.check(inputs, outputs).mismatches == 0


def test_damaged_words_are_refused(folder: Path, tmp_path: Path) -> None:
    executable = compiled("tern", "attention", folder)
    program = damaged(executable, tmp_path)
    words = np.frombuffer((program / "program.bin").read_bytes(), np.uint8).copy()
    generator = np.random.default_rng(1)
    for _ in range(8):
        changed = words.copy()
        changed[generator.integers(0, words.size, 3)] ^= np.uint8(1 << generator.integers(0, 8))
        (program / "program.bin").write_bytes(changed.tobytes())
        try:
            runner = find_target("tern").load(program)
            runner.run(inputs_of(executable, 0), check_races=True)
        except TilewrightError:
            pass
