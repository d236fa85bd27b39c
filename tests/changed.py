"""The tests that a change concerns most: ``python -m tests.changed`` prints their paths.

Changed is what differs from the commit at which this branch left ``main``, committed or not. A
changed file of ``src/tilewright`` concerns the tests of its room that bear its name or import it,
and REPRESENTATIVES: of every room and target a test or two that are quick and see most of what can
break there. All tests of the rooms above a low one would take seven minutes: they are what
``make test`` is for, before every push. Those of the file come first, as likeliest to fail.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.test_imports import imported_modules

ROOT = Path(__file__).parent.parent
ALWAYS = ("tests/test_imports.py", "tests/errors/test_codes.py")
"""Fast, and they look at the whole repository."""

REPRESENTATIVES = (
    "tests/ir/test_passes.py",
    "tests/planning/test_plan.py",
    "tests/tile/test_tile_text.py",
    "tests/graph/test_interpreter.py",
    "tests/graph/passes/test_goldens.py",
    "tests/simulate/test_timing.py",
    "tests/compiler/test_request.py",
    "tests/runtime/test_runtime_packages.py",
    "tests/end_to_end/test_emitted_goldens.py",
    "tests/cli/test_commands.py::test_run_prints_what_machines_read",
    "tests/targets/cambricon_x/test_cambricon_x_isa.py",
    "tests/targets/shidiannao/test_shidiannao_isa.py",
    "tests/targets/cambricon/test_cambricon_networks.py",
    "tests/targets/cpu/test_cpu_networks.py::test_random_networks",
    "tests/targets/dpu/test_dpu_networks.py::test_a_network_of_all_kinds_runs_on_the_core",
    "tests/targets/generic/test_packages.py::test_a_network_matches_the_interpreter_bit_for_bit",
    "tests/targets/ascend/test_ascend_networks.py::test_a_network_on_the_core",
    "tests/targets/sunway/test_packages.py::test_every_layer_is_what_the_interpreter_computes",
)
"""In the order of the pipeline; together about a minute on two cores."""

FEW = 2
"""Tests of a file below which those that import its room are its tests, too."""

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
    """Files of tests, and single ones, that a change of ``files`` concerns, likeliest first."""
    near: list[str] = []
    wide = False
    for file in files:
        parts = Path(file).parts
        if parts[:2] == ("src", "tilewright"):
            near += near_tests(parts[2:])
            wide = True
        elif file in SHARED or (parts[0] == "tests" and len(parts) == 2 and _shared(file)):
            wide = True
        elif parts[0] == "tests":
            near += [file] if not _shared(file) else _tests_in(ROOT.joinpath(*parts[:-1]))
        elif parts[0] == "benchmarks":
            near += _tests_in(ROOT / "tests" / "benchmarks")
        elif parts[0] in ("docs", "README.md"):
            near.append("tests/test_docs.py")
        elif parts[0] == "examples":
            near += ["tests/end_to_end/test_machine_file.py", "tests/end_to_end/test_demo.py"]
    listed = dict.fromkeys([*near, *ALWAYS, *(REPRESENTATIVES if wide else ())])
    present = [test for test in listed if (ROOT / test.partition("::")[0]).exists()]
    return [test for test in present if "::" not in test or test.partition("::")[0] not in present]


def _shared(file: str) -> bool:
    """Whether a file among the tests is no test itself, but read by tests."""
    return not Path(file).name.startswith("test_")


def _tests_in(folder: Path) -> list[str]:
    """The tests beside a file that they share."""
    return [str(path.relative_to(ROOT)) for path in sorted(folder.glob("test_*.py"))]


def near_tests(parts: tuple[str, ...]) -> list[str]:
    """Tests of a source file, given by its path in ``src/tilewright``: by name, or by import."""
    room_name, *inner = parts
    stem = parts[-1].removesuffix(".py")
    stem = parts[-2] if stem == "__init__" and inner else stem
    module = ".".join(("tilewright", *parts)).removesuffix(".py").removesuffix(".__init__")
    room = ROOT / "tests" / room_name.removesuffix(".py")
    folder = room / inner[0] if room_name == "targets" and len(inner) > 1 else room
    tests = {path: _imports(path) for path in sorted(folder.rglob("test_*.py"))}
    named = [p for p, imports in tests.items() if stem in p.stem or module in imports]
    if len(named) < FEW:
        # The room hands out what the file has.
        named += [p for p, imports in tests.items() if module.rpartition(".")[0] in imports]
    return [str(path.relative_to(ROOT)) for path in dict.fromkeys(named)]


@cache
def _imports(path: Path) -> frozenset[str]:
    return frozenset(imported_modules(path))


if __name__ == "__main__":
    sys.stdout.write(" ".join(concerned_by(changed_files())) + "\n")
