"""Words of the code and its pages: files that they name exist, and retired names stay away."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tilewright"

NAMED = re.compile(r"(?<![\w./*-])((?:[\w-]+/)*[a-z][\w-]*\.py)\b(?![\w(*])")
"""A module, with folders or without. Other files may be those of packages."""

FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")

FILES = {
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
NAMES = {name.rpartition("/")[2] for name in FILES}


def missing(path: Path, text: str) -> list[str]:
    """The files that a text names and nobody has."""
    absent: list[str] = []
    for name in dict.fromkeys(NAMED.findall(text)):
        near = name in NAMES if "/" not in name else any(f.endswith(f"/{name}") for f in FILES)
        if not near and name not in FILES:
            absent.append(f"{path.relative_to(ROOT)}: {name}")
    return absent


def prose(path: Path) -> str:
    """Docstrings and comments of a module, or a page whole."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    return "\n".join([*re.findall(r'"""(.*?)"""', text, re.DOTALL), *re.findall(r"#(.*)", text)])


PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks" / "results").glob("*.md")),
]


def test_files_that_pages_name_exist() -> None:
    left = [path for path in PAGES if path.name != "CHANGELOG.md"]
    assert not [line for path in left for line in missing(path, prose(path))]


@pytest.mark.parametrize("room", sorted(path.name for path in SOURCE.iterdir() if path.is_dir()))
def test_files_that_texts_name_exist(room: str) -> None:
    paths = [p for p in (SOURCE / room).rglob("*") if p.suffix in (".py", ".md")]
    assert not [line for path in sorted(paths) for line in missing(path, prose(path))]


RETIRED = {
    "road": "pipeline",
    "Station": "Stage",
    "Work": "CompilationState",
    "Arrivals": "prefetched operands",
    "FirstTiles": "prefetch slots",
    "LastTile": "prefetch in the last iteration",
    "HeldConstant": "Resident",
    "HeldKernel": "Resident",
    "KeptTiles": "Resident",
    "Mark": "patch point",
    "Opening": "prefetch slot",
    "Thrift": "register pressure",
    "beside_neighbours": "refinement between kernels",
    "containers": "DLIR's own word: benchmarks/papers/dlir",
    "halo_keep": "circular buffer",
    "held_constants": "residents",
    "hold_values": "residency",
    "keeps_values": "Memory.resident",
    "learned": "costs follow from the machine",
    "odometer": "coalesced loop nest",
    "opening": "prefetch slot",
    "resident_values": "residency",
    "resident_weights": "residency",
    "rolls": "circular buffer",
    "row_ring": "circular buffer",
    "weight_ring": "circular buffer",
}
"""Identifiers that have been renamed, each with the word that took its place."""


def identifiers(path: Path) -> set[str]:
    """The names that a module defines, uses or imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for field in ("id", "attr", "arg", "name", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                names |= {value, *value.split(".")}
    return names


@pytest.mark.parametrize("room", sorted(path.name for path in SOURCE.iterdir() if path.is_dir()))
def test_retired_identifiers_stay_away(room: str) -> None:
    uses = {
        f"{path.relative_to(SOURCE)}: {name}, now {RETIRED[name]}"
        for path in (SOURCE / room).rglob("*.py")
        for name in identifiers(path) & RETIRED.keys()
    }
    assert not uses
