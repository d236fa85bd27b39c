"""What is emitted for small networks, as text: C of three targets, words of three, HLAL of one.

The first line of a golden has the commands that make it; ``pytest --bless`` writes what they make
now. Read the difference.
"""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from tests.end_to_end.golden_networks import NETWORKS
from tilewright.cli.main import app

FOLDER = Path(__file__).parent / "goldens"
ROOT = Path(__file__).parents[2]
COMMANDS = re.compile(
    r"\W+ tilewright compile (\w+)\.onnx (.*) -o package; (cat|tilewright disasm) package(\S*)\n"
)


def run(*arguments: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def emitted(first: str, folder: Path) -> str:
    """What the commands of a first line print."""
    found = COMMANDS.fullmatch(first)
    assert found, "the first line has the commands"
    name, options, printer, pattern = found.groups()
    onnx.save(NETWORKS[name](), folder / f"{name}.onnx")
    named = [str(ROOT / one) if one.endswith(".toml") else one for one in options.split()]
    package = folder / "package"
    run("compile", folder / f"{name}.onnx", *named, "-o", package, "--quiet", "--no-cache")
    if printer == "cat":
        files = sorted(package.glob(pattern.removeprefix("/")))
        assert files
        return "".join(file.read_text() for file in files)
    return run("disasm", package)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_golden(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first, _, expected = path.read_text().partition("\n")
    text = emitted(f"{first}\n", tmp_path)
    if request.config.getoption("--bless"):
        path.write_text(f"{first}\n{text}")
    else:
        assert text == expected


def test_every_network_has_a_golden_of_every_kind() -> None:
    kinds = ("cpu.c", "npu.c", "sunway.c", "cambricon-x.asm", "shidiannao.asm", "zu2.asm", "hlal")
    expected = {f"{name}.{kind}" for name in NETWORKS for kind in kinds}
    assert {path.name for path in FOLDER.iterdir()} == expected
