"""The command itself: what it imports, what it lists, and how it ends."""

import errno
import json
import os
import subprocess
import sys
from inspect import getdoc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilewright.cli.main import COMMANDS, app, command
from tilewright.system.choices import target_names

HEAVY = {"numpy", "onnx", "xdsl", "numba", "torch", "tilewright.compiler", "tilewright.targets"}

PROBE = """
import json, sys
from tilewright.cli.main import main
sys.argv[0] = "tilewright"
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """What a process prints, and the modules that it has imported at its end."""
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        capture_output=True, text=True, check=True, env={**os.environ, **environment},
    )  # fmt: skip
    return ran.stdout, set(json.loads(ran.stderr.splitlines()[-1]))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_imports_no_compiler(name: str) -> None:
    said, modules = modules_after(name, "--help")
    assert f"tilewright {name}" in said and "Example:" in said
    assert not modules & HEAVY, modules & HEAVY


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_imports_no_compiler(arguments: list[str]) -> None:
    said, modules = modules_after(*arguments)
    assert ("tilewright" in said) == bool(arguments)  # Without any, it is told as an error.
    assert not modules & HEAVY, modules & HEAVY


def test_completion_imports_no_compiler() -> None:
    said, modules = modules_after(
        _TILEWRIGHT_COMPLETE="complete_bash", COMP_WORDS="tilewright c", COMP_CWORD="1"
    )
    assert said.split() == [name for name in COMMANDS if name.startswith("c")]
    assert not modules & HEAVY, modules & HEAVY


def test_completion_of_options_imports_no_compiler() -> None:
    said, modules = modules_after(
        _TILEWRIGHT_COMPLETE="complete_bash", COMP_WORDS="tilewright run --target c", COMP_CWORD="3"
    )
    assert said.split() == [name for name in target_names() if name.startswith("c")]
    assert not modules & HEAVY, modules & HEAVY


def test_listed_lines_are_those_of_the_commands() -> None:
    for name, (_, line) in COMMANDS.items():
        told = " ".join((command(name).help or "").partition("\n\n")[0].split())
        assert line == told, name
        assert getdoc(command(name).callback)


def test_commands_take_options_of_their_own() -> None:
    result = CliRunner().invoke(app, ["cache", "--help"])
    assert result.exit_code == 0 and "--clear" in result.output
    result = CliRunner().invoke(app, ["compil"])
    assert result.exit_code == 2 and "Did you mean 'compile'" in result.output


def test_a_place_for_results_that_is_full(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "tilewright", "--help"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1 and os.strerror(errno.ENOSPC) in ran.stderr
