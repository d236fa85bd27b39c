"""The pages' commands work: every indented ``tilewright`` line is run, in page order."""

import re
import shlex
import shutil
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilewright.cli.main import app
from tilewright.targets.base import find_target

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(page: Path) -> list[list[str]]:
    """The arguments of the page's commands: indented lines that begin with ``tilewright``."""
    found = [line.strip() for line in page.read_text().splitlines() if line.startswith("    ")]
    return [shlex.split(line)[1:] for line in found if line.startswith("tilewright ")]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The pages speak from the repository's root.
    for folder in ("examples", "tests/frontends/tensorflow/models"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    for arguments in commands(page):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"tilewright {shlex.join(arguments)}\n{result.output}"


def test_pages_name_files_that_exist() -> None:
    for page in PAGES:
        for word in page.read_text().replace("`", " ").split():
            name = word.strip("().,:;")
            if name.startswith(("src/", "docs/", "examples/", "tests/", "benchmarks/")):
                assert (ROOT / name).exists() or "NAME" in name, f"{page.name}: {name}"


def test_tour_lists_the_decisions_that_targets_keep() -> None:
    tour = (ROOT / "docs" / "tour.md").read_text()
    (table,) = re.findall(r"(?m)^\| target \| addresses .*\n.*\n((?:\|.*\n)+)", tour)
    stated: dict[str, set[str]] = {}
    for row in table.splitlines():
        names, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        columns = ("addresses", "waits", "order", "slots")
        kept = {column for column, cell in zip(columns, cells, strict=False) if cell}
        stated |= dict.fromkeys(re.findall(r"`([^`]+)`", names), kept)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in project["entry-points"]["tilewright.targets"]:
        (kept,) = [stated[pattern] for pattern in stated if fnmatch(name, pattern)]
        assert find_target(name).honours == kept, name
