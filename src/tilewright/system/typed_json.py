"""JSON that is read into records (``msgspec.Struct``), the type and the bounds of fields checked.

A class with ``forbid_unknown_fields`` refuses keys that it does not know. Nothing is converted but
whole numbers where floats belong. The text is parsed by Python's own module, as msgspec's parser
does not know the infinite numbers that descriptions of machines may hold.

Machine files are read by pydantic, which says more about what is wrong. It takes longer to import
than a server takes to open a package and run it, so packages are read by this module.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class JsonError(ValueError):
    """The fault of a text, and its place: ``Expected `int`, got `str` - at `$.files```."""


def from_json(kind: type[T], text: str | bytes) -> T:
    """A record read from a text; raises ``JsonError``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonError(f"is no JSON: {error}") from error
    return from_value(kind, value)


def from_value(kind: type[T], value: Any) -> T:
    """A record read from JSON that has been parsed; raises ``JsonError``."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise JsonError(str(error)) from error


def to_json(record: msgspec.Struct, indent: int | None = None) -> str:
    """The text of a record, which ``from_json`` reads; raises ``JsonError`` for a field that holds
    something else than its type says."""
    plain = msgspec.to_builtins(record)
    from_value(type(record), plain)
    return json.dumps(plain, indent=indent)
