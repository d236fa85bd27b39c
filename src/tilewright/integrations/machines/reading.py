"""YAML files that nobody vouches for, read into plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError, refuse
from tilewright.machine.checks import shown
from tilewright.machine.expression import parse_expression
from tilewright.system.extras import library
from tilewright.system.files import need_file, reason_of

CODE = "machine-import"

MAX_FILE = 256 << 10
"""Bytes that a file may have."""

LARGEST = 1e18

MOST_UNITS = 1 << 30
"""Multipliers of an array, or instances of a memory."""

TAG = "!"
"""The key of a mapping's tag, such as ``Memory`` of ``!Memory``."""


def read_yaml(path: Path) -> Any:
    """The data of a YAML file; a mapping with a tag of the file's own has it under ``TAG``.

    Raises TilewrightError (``machine-import``) for what cannot be read, is too large, is nested too
    deeply, is a template, or has aliases or objects of Python's.
    """
    where = shown(path)
    try:
        need_file(path, CODE, where=where)
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise refuse(CODE, f"larger than {MAX_FILE} bytes", where)
        text = content.decode()
    except (OSError, ValueError) as error:
        raise refuse(CODE, shown(reason_of(error)), where) from None
    if "{%" in text or "{{" in text:
        help = "render it with its tool's values, and import the result"
        raise refuse(CODE, "the file is a template (Jinja)", where, help)
    yaml = library("yaml", "import", CODE, "descriptions in YAML")

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """The safe loader, without aliases, by which small files hold values without end."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*) are not read: write the values out")
            return super().compose_node(parent, index)

    def tagged(loader: Any, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {**loader.construct_mapping(node, deep=True), TAG: suffix}
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    Loader.add_multi_constructor("!", tagged)
    try:
        return yaml.load(text, Loader)
    except RecursionError:
        raise refuse(CODE, "nested too deeply", where) from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise refuse(CODE, f"not YAML: {line}{shown(error.problem)}", where) from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise refuse(CODE, f"not YAML: {shown(error)}", where) from None


def table(value: Any, where: str) -> Mapping[str, Any]:
    """A mapping; refuses anything else."""
    if not isinstance(value, dict):
        raise refuse(CODE, f"must be a mapping, not {shown(value)}", where)
    return value


def listed(value: Any, where: str) -> list[Any]:
    """A list; refuses anything else."""
    if not isinstance(value, list):
        raise refuse(CODE, f"must be a list, not {shown(value)}", where)
    return value


def number(value: Any, where: str) -> float | None:
    """A number that is not negative, or arithmetic without names; None for infinity.

    Raises TilewrightError for anything else, such as an expression of other components.
    """
    if isinstance(value, str) and value.strip() not in ("inf", "infinity"):
        try:
            expression = parse_expression(value)
            if expression.names:
                reason = f"{shown(value)} depends on {', '.join(expression.names)}"
                raise refuse(CODE, reason, where, "write the number")
            value = expression.evaluate({})
        except TilewrightError as error:
            raise refuse(CODE, error.problems[0].reason, where, "write the number") from None
    elif isinstance(value, str):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise refuse(CODE, f"must be a number, not {shown(value)}", where)
    if value == math.inf:
        return None
    if not 0 <= value <= LARGEST:
        raise refuse(CODE, f"must be from 0 to {LARGEST:g}, not {shown(value)}", where)
    return value


def whole(value: Any, where: str) -> int:
    """A whole number above 0, which an array's side or a fanout is."""
    found = number(value, where)
    if found is None or not 1 <= found <= MOST_UNITS or found != int(found):
        raise refuse(CODE, f"must be a whole number from 1 to 2**30, not {shown(value)}", where)
    return int(found)


def times(left: int, right: int, where: str) -> int:
    """A product of numbers of units; refuses more than any array has."""
    return whole(left * right, where)
