"""A wheel holds every file that the sources open."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_wheel_has_all_files_beside_the_modules() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    files = [
        path
        for path in (ROOT / "src" / "tilewright").rglob("*")
        if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__"
    ]
    assert len(files) > 30
    left_out = [path for path in files if not any(fnmatch(path.name, p) for p in patterns)]
    assert not left_out, "package-data of pyproject.toml names no pattern for these"
