"""Imports run one way, floor by floor, and xDSL comes in through one module."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tilewright"

FLOORS: list[set[str]] = [
    {"errors", "system", "numerics", "machine", "memory", "shapes"},
    {"simulate", "ir"},
    {"planning"},
    {"graph", "tile"},
    {"codegen"},
    {"frontends", "targets"},
    {"runtime"},
    {"network"},
    {"numbers"},
    {"compiler"},
    {"report", "integrations", "sweeps", "llm"},
    {"api"},
    {"cli"},
    {"__main__"},
]
"""A room may import its own and those of earlier floors."""

BY_STRING = {"import_module", "__import__", "find_spec", "locate", "run_module"}
"""Functions that import the module of a name, or look for it."""

FILES = sorted(SOURCE.rglob("*.py"))
TARGETS = sorted(SOURCE.glob("targets/*/__init__.py"))


def floor_of(room: str) -> int:
    for number, rooms in enumerate(FLOORS):
        if room in rooms:
            return number
    raise AssertionError(f"{room} has no floor: give it one in FLOORS")


@cache
def imported_modules(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found.append(node.module or "")
    return found


def rooms_in_strings(path: Path) -> set[str]:
    """Rooms that a file names in strings, if it imports modules by strings."""
    text = path.read_text()
    if not any(name in text for name in BY_STRING):  # Most files; the others are parsed.
        return set()
    tree = list(ast.walk(ast.parse(text)))
    called = {
        ast.unparse(node.func).rpartition(".")[2] for node in tree if isinstance(node, ast.Call)
    }
    if not called & BY_STRING:
        return set()
    texts = [node.value for node in tree if isinstance(node, ast.Constant)]
    named = [text.split(".") for text in texts if isinstance(text, str) and "\n" not in text]
    return {parts[1] for parts in named if parts[0] == "tilewright" and len(parts) > 1}


ROOMS = sorted({path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES})


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room: str) -> None:
    place = {"__init__": "api"}.get(room, room)
    for path in [SOURCE / f"{room}.py", *(SOURCE / room).rglob("*.py")]:
        if not path.exists():
            continue
        for module in imported_modules(path):
            if module.split(".")[0] == "xdsl":
                assert place == "ir", f"{path} imports xDSL past tilewright.ir"
            if module.startswith("tilewright."):
                other = module.split(".")[1]
                if other == place:
                    continue
                below = floor_of(other) < floor_of(place)
                pair = floor_of(other) == 0 and floor_of(place) == 0
                assert below or pair, f"{place} must not import {other} ({path})"


FAMILIES = {"cambricon_x": "generic", "shidiannao": "generic"}
"""Targets whose code is another's with other machines and instructions."""


@pytest.mark.parametrize("target", sorted({path.parts[-2] for path in TARGETS}))
def test_targets_are_no_libraries(target: str) -> None:
    """A target imports no other one, and reads no file of it, but its family's."""
    allowed = {target, "base", "words", FAMILIES.get(target, target)}
    for path in sorted((SOURCE / "targets" / target).rglob("*.py")):
        named = [module.split(".") for module in imported_modules(path)]
        named += [
            text.split(".") for text in re.findall(r'"(tilewright\.[\w.]+)"', path.read_text())
        ]
        used = {parts[2] for parts in named if parts[:2] == ["tilewright", "targets"] and parts[2:]}
        assert used <= allowed, f"{path} takes from {used - allowed}"


def test_no_import_by_a_string_gets_around_the_order() -> None:
    for path in FILES:
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        place = {"__init__": "api"}.get(room, room)
        for other in rooms_in_strings(path) - {place}:
            assert floor_of(other) < floor_of(place), f"{path} imports {other} by a string"


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(SOURCE)): count
        for path in FILES
        if (count := len(path.read_text().splitlines())) > 500
    }
    assert not long, f"files over 500 lines hold more than one idea: {long}"
