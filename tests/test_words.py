"""Words of the code and its pages: files that they name exist, and retired words stay away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
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


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax of a module, parsed once."""
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module's syntax."""
    return list(ast.walk(tree_of(path)))


@cache
def identifiers(path: Path) -> set[str]:
    """The names that a module defines, uses or imports."""
    names: set[str] = set()
    for node in nodes_of(path):
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


REPLACED = {
    "agenda": "transfer scheduler",
    "bands": "pixel packing",
    "begun": "started, or start",
    "behind": "after",
    "bridge": "weights by both DMAs",
    "clips": "skips padding",
    "coming": "next tile",
    "drain": "flush",
    "due": "of the next tile",
    "held": "resident, or the thing held",
    "hook": "issue slot",
    "late": "deferred",
    "replaces": "in place",
    "seldom": "outlined cold block",
    "there": "the condition, by its name",
    "thrift": "register pressure",
    "trail": "streaming store",
    "turning": "update of the next tile",
}
"""Words that are no part of an identifier, each with what to say instead."""

OWN = {"machine", "network", "planning", "targets"}
"""Rooms with variables called ``own``, which is the record of what a family has for itself."""

OPENINGS = {
    *("What", "Whether", "Where", "How", "Of", "That", "Which", "When", "So", "If", "It", "As"),
    *("Who", "Whose", "Why", "Only", "Also"),
}
"""Words with which docstrings of modules, public classes and attributes do not begin: they name
their subject."""

ROOMS = sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name[0] != "_")


def words_of(identifier: str) -> set[str]:
    """The words that an identifier is put together of, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


@pytest.mark.parametrize("room", ROOMS)
def test_identifiers_use_the_fields_words(room: str) -> None:
    uses = {
        f"{path.relative_to(SOURCE)}: {name}, say {REPLACED[word]}"
        for path in (SOURCE / room).rglob("*.py")
        for name in identifiers(path)
        for word in words_of(name) & REPLACED.keys()
    }
    assert not uses


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in OWN])
def test_own_is_a_record(room: str) -> None:
    uses = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in (SOURCE / room).rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Name) and node.id == "own" and isinstance(node.ctx, ast.Store)
    ]
    assert not uses, "name it for what it is"


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_name_their_subject(room: str) -> None:
    poor: list[str] = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        tree = tree_of(path)
        classes = [n for n in nodes_of(path) if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
        for node in (tree, *classes):
            words = (ast.get_docstring(node) or "").split("\n\n")[0].split()
            if tree.body and (len(words) < 5 or words[0].strip(".,:") in OPENINGS):
                name = getattr(node, "name", "the module")
                poor.append(f"{path.relative_to(SOURCE)}, {name}: {' '.join(words)}")
    assert not poor, "begin with a noun or a verb, in five words at least"


RIDDLES = re.compile(
    r"\b(?:that|which|who|what) (?:is|are) (?-i:none)\b|\bcome upon\b|\bthat there are not\b"
    r"|\bcomes? quantised\b|\bwith company\b|\bas it lies\b|\bunasked\b|\bso many\b|\bgo there\b"
    r"|\brefuses? (?:any other|another)[.;,]|\bin front of all\b"
    r"|^(?-i:The) same[,;]? (?:of|for|by|but|after|where)\b"
    # Caches, pointers and meshes have things behind them, and latency hides behind computes.
    r"|(?<!hide )(?<!hides )\bbehind\b(?! (?:caches|a (?:cache|mesh)|L2|one address|products))",
    re.IGNORECASE,
)
"""Phrases that readers stop at, in pages and in texts of the source."""

COMMENT = re.compile(r"^((?:.*\s)?)# (.*)$", re.MULTILINE)


def comments(text: str) -> Iterator[str]:
    """The blocks of comments in a module, each as one line."""
    block: list[str] = []
    for line in text.splitlines():
        match = COMMENT.match(line)
        if match is None or match[1].strip():
            yield " ".join(block)
            block.clear()
        if match is not None:
            block.append(match[2])
    yield " ".join(block)


def texts(path: Path) -> Iterator[str]:
    """Docstrings, string literals and comments of a module, each as one line."""
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())
    yield from comments(path.read_text())


def attributes(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and docstrings of a module's constants and of its classes' fields."""
    for node in nodes_of(path):
        body = getattr(node, "body", None)
        for before, after in pairwise(body if isinstance(body, list) else []):
            assigned = isinstance(before, ast.Assign | ast.AnnAssign)
            if assigned and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                yield after.lineno, str(after.value.value)


def test_pages_have_no_riddles() -> None:
    left = [path for path in PAGES if path.name != "CHANGELOG.md"]
    assert not [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in left
        for match in RIDDLES.finditer(" ".join(path.read_text().split()))
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_texts_have_no_riddles(room: str) -> None:
    assert not [
        f"{path.relative_to(SOURCE)}: {match.group()} in {text[:80]}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for text in texts(path)
        for match in RIDDLES.finditer(text)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_attributes_say_what_they_are(room: str) -> None:
    poor = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for line, text in attributes(path)
        if len(text.split()) < 4 or text.split()[0].strip(".,:") in OPENINGS
    ]
    assert not poor, "begin with what the value is (True if, Bytes of, ...), in four words at least"
