"""The tests that a change concerns: ``python -m tests.changed`` prints their paths.

Changed is what differs from the commit at which this branch left ``main``, committed or not. A
change in a room of ``src/tilewright`` concerns the room's tests and those of the rooms on the
floors above it (tests/test_imports.py), which may import it; a change of a target concerns, of the
targets, itself and those that import it. A change that any test may feel concerns all.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.test_imports import FLOORS, SOURCE, floor_of, imported_modules

ROOT = Path(__file__).parent.parent
ALL = ["tests"]
ALWAYS = {"tests/test_imports.py", "tests/test_docs.py", "tests/errors/test_codes.py"}
"""Fast, and they look at the whole repository."""

WHOLE = {"tests/end_to_end", "tests/suites", "tests/fuzz", "tests/benchmarks"}
"""Tests of the whole compiler, whichever room has changed."""

SHARED = {"pyproject.toml", "constraints.txt", "Makefile"}


def changed_files() -> list[str]:
    """Paths from the repository's root, in the order of their names."""
    for branch in ("main", "origin/main", "HEAD"):
        base = _git("merge-base", "HEAD", branch)
        if base:
            break
    different = _git("diff", "--name-only", base[0] if base else "HEAD")
    return sorted({*different, *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def concerned_by(files: Iterable[str]) -> list[str]:
    """Folders and files of tests that a change of ``files`` concerns; none lies in another."""
    concerned = set(ALWAYS)
    for file in files:
        parts = Path(file).parts
        if file in SHARED or (parts[0] == "tests" and len(parts) == 2 and _shared(file)):
            return ALL
        if parts[:2] == ("src", "tilewright"):
            concerned |= WHOLE | {path for path in _of_source(parts[2:]) if (ROOT / path).exists()}
        elif parts[0] == "tests":
            concerned.add("/".join(parts[:-1]) if len(parts) > 2 else file)
        elif parts[0] == "benchmarks":
            concerned.add("tests/benchmarks")
        elif parts[0] == "examples":
            concerned.add("tests/end_to_end")
    present = [path for path in sorted(concerned) if (ROOT / path).exists()]
    return [path for path in present if not any(f"{one}/" in f"{path}/"[:-1] for one in present)]


def _shared(file: str) -> bool:
    """Whether a file beside the tests' folders is no test itself, but read by tests."""
    return file.endswith(".py") and not Path(file).name.startswith("test_")


def _of_source(parts: tuple[str, ...]) -> set[str]:
    """Tests of a changed source file, given by its path in ``src/tilewright``."""
    room = {"__init__.py": "api"}.get(parts[0], parts[0].removesuffix(".py"))
    floor = floor_of(room)
    above = {f"tests/{other}" for rooms in FLOORS[floor + 1 :] for other in rooms}
    if floor == 0:  # Rooms on the lowest floor may import one another.
        above |= {f"tests/{other}" for other in FLOORS[0]}
    if room != "targets" or len(parts) < 3:
        return {f"tests/{room}", *above}
    return {f"tests/targets/{target}" for target in _users(parts[1])} | above


@cache
def _users(target: str) -> set[str]:
    """The target, and those that import it, directly or through others."""
    folders = [path for path in (SOURCE / "targets").iterdir() if path.is_dir()]
    imports = {
        folder.name: {
            module.split(".")[2]
            for path in folder.rglob("*.py")
            for module in imported_modules(path)
            if module.startswith("tilewright.targets.")
        }
        for folder in folders
    }
    users = {target}
    while more := {name for name, others in imports.items() if others & users} - users:
        users |= more
    return users


if __name__ == "__main__":
    sys.stdout.write(" ".join(concerned_by(changed_files())) + "\n")
