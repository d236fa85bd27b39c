"""Tests replace what a module offers for that, never what it keeps to itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent

FOREIGN = {("typer.testing", "_get_command")}
"""Private names of other projects' modules, which have no public seam."""

REPLACING = ("setattr", "delattr", "object")
"""Functions that replace an attribute."""


def replaced(path: Path) -> Iterator[tuple[str, str]]:
    """Owner and name of each attribute that a file replaces."""
    text = path.read_text()
    if not any(word in text for word in REPLACING):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        texts = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
        names = [text for text in texts if isinstance(text, str)]
        if node.func.attr in REPLACING and names:
            owner, _, name = f"{ast.unparse(node.args[0])}.{names[0]}".replace("'", "").rpartition(
                "."
            )
            yield owner, name


def test_no_test_replaces_a_private_name() -> None:
    found = {
        (owner, name): str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        for owner, name in replaced(path)
        if name.startswith("_") and not name.endswith("__")
    }
    assert found.keys() == FOREIGN, found
