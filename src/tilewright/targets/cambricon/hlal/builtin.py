"""The built-in macros and blocks: HLAL texts beside this file, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.expand import Definitions
from tilewright.targets.cambricon.hlal.parse import parse
from tilewright.targets.cambricon.hlal.values import problem


def library_texts() -> dict[str, str]:
    """The texts of the library by file name, in order."""
    folder = files("tilewright.targets.cambricon.hlal.library")
    texts = {
        item.name: item.read_text() for item in folder.iterdir() if item.name.endswith(".hlal")
    }
    return dict(sorted(texts.items()))


@cache
def _library() -> Definitions:
    definitions = Definitions()
    for name, text in library_texts().items():
        for node in parse(text, f"library/{name}"):
            define(node, definitions)
    return definitions


def library() -> Definitions:
    """The built-in macros and blocks; a copy that a program's own are added to."""
    built_in = _library()
    return Definitions(dict(built_in.macros), dict(built_in.blocks))


def define(node: syntax.Node, definitions: Definitions, own_names: set[str] | None = None) -> bool:
    """Take a macro or block into ``definitions``; whether it was one.

    A program's own definition takes the place of a built-in one; ``own_names`` holds those so far.
    """
    if not isinstance(node, syntax.Macro | syntax.Block):
        return False
    own_names = {*definitions.macros, *definitions.blocks} if own_names is None else own_names
    if node.name in own_names:
        raise problem(node.at, "is defined twice", code="hlal-name")
    own_names.add(node.name)
    names = node.parameters if isinstance(node, syntax.Macro) else [p.name for p in node.parameters]
    if len(set(names)) != len(tuple(names)):
        raise problem(node.at, "names a parameter twice", code="hlal-name")
    definitions.macros.pop(node.name, None)
    definitions.blocks.pop(node.name, None)
    if isinstance(node, syntax.Macro):
        definitions.macros[node.name] = node
    else:
        definitions.blocks[node.name] = node
    return True
