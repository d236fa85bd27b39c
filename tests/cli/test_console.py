"""Results for people are no wider than 80 columns where there is no terminal."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilewright.cli.console import COLUMNS, fold
from tilewright.cli.main import app

LENET = str(Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx")


def test_lines_are_cut_at_spaces_and_words_stay_whole() -> None:
    text = "short\n  one two three four\n" + "x" * 30
    assert fold(text, 12) == ["short", "  one two", "    three", "    four", "x" * 30]
    assert fold("a    b    c", 11) == ["a    b    c"]
    assert " ".join(" ".join(fold(text, 12)).split()) == " ".join(text.split())


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "command",
    [
        ("plan", LENET, "-t", "cambricon-x", "-q"),
        ("plan", LENET, "-t", "shidiannao", "--planner", "greedy", "--beside", "exact", "-q"),
        ("explain", LENET, "-t", "cambricon", "-q"),
        ("fuse", LENET, "-t", "examples/machines/fused.toml", "-q"),
        ("memory", LENET, "-q"),
        ("targets",),
        ("targets", "cambricon-x"),
        ("opt", "--list"),
        ("compile", LENET, "-t", "cambricon-x", "--kernels", "-q", "-o", "PACKAGE"),
        ("run", LENET, "-t", "shidiannao", "--random", "1", "--check", "-q"),
    ],
    ids=lambda command: " ".join(command[:1] + command[2:4]),
)
def test_no_line_is_wider(command: tuple[str, ...], tmp_path: Path) -> None:
    place = str(tmp_path / "package")
    ran = CliRunner().invoke(app, [place if text == "PACKAGE" else text for text in command])
    assert ran.exit_code == 0, ran.output
    lines = ran.stdout.splitlines()
    assert len(lines) > 3
    wide = [line for line in lines if len(line) > COLUMNS and " " in line.strip()]
    assert not wide, wide[0]
