"""JSON that is read into frozen dataclasses, the type and the bounds of every field checked.

Fields have these types: ``str``, ``int``, ``float``, ``bool``, ``None``, ``Any``, a ``Literal`` of
texts, another dataclass, ``tuple[T, ...]``, ``tuple[A, B]``, ``dict[str, T]``, a union of such
types, and ``Annotated[T, Range(...)]``. A key without a field is an error, but for classes with
``other_keys = True``, and so is a field without a key that has no default. Nothing is converted but
whole numbers where floats belong.

Machine files are read by pydantic, which does all this and more. It takes longer to import than a
server takes to open a package and run it, so packages are read by this module.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from functools import cache
from math import inf
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")

Reader = Callable[[Any], Any]
"""Checks a value of parsed JSON and returns what a field holds; raises ``JsonError``."""


class JsonError(ValueError):
    """The fault of a text, and its key: ``where`` is ``files.weights.bytes``, or empty
    for the text as a whole."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._keys: list[str] = []

    @property
    def where(self) -> str:
        """The keys that lead to the value, joined by dots."""
        return ".".join(self._keys)

    def inside(self, key: object) -> JsonError:
        """The same error, of a value that lies under ``key``."""
        self._keys.insert(0, str(key)[:80])
        return self


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both included. What is not a number (NaN) lies in no range."""

    low: float = -inf
    high: float = inf
    above: float | None = None
    """A bound that the number must exceed."""

    def check(self, value: float) -> None:
        """Raise ``JsonError`` for a number outside."""
        if not self.low <= value <= self.high or (self.above is not None and value <= self.above):
            least = f"at least {self.low}" if self.above is None else f"above {self.above}"
            raise JsonError(f"{str(value)[:40]} is not {least} and at most {self.high}")


def from_json(kind: type[T], text: str | bytes) -> T:
    """A dataclass read from a text; raises ``JsonError``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonError(f"is no JSON: {error}") from error
    return from_value(kind, value)


def from_value(kind: type[T], value: Any) -> T:
    """A dataclass read from JSON that has been parsed; raises ``JsonError``."""
    return cast("T", _reader(kind)(value))


def to_json(record: Any, indent: int | None = None) -> str:
    """The text of a dataclass, which ``from_json`` reads; raises ``JsonError`` for a field that
    holds something else than its type says."""
    plain = asdict(record)
    _reader(type(record))(plain)
    return json.dumps(plain, indent=indent)


@cache
def _reader(kind: Any) -> Reader:
    """The reader of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind in _PLAIN:
        return _PLAIN[kind]
    if is_dataclass(kind):
        return _record(cast("type[Any]", kind))
    if origin is Annotated:
        return _bounded(_reader(arguments[0]), arguments[1])
    if origin is Literal:
        return _literal(frozenset(arguments))
    if origin in (Union, types.UnionType):
        return _union([_reader(each) for each in arguments if each is not types.NoneType],
                      types.NoneType in arguments)  # fmt: skip
    if origin is tuple and arguments[1:] == (...,):
        return _row(_reader(arguments[0]))
    if origin is tuple:
        return _rows([_reader(each) for each in arguments])
    if origin is dict and arguments[0] is str:
        return _table(_reader(arguments[1]))
    raise TypeError(f"no field has type {kind}")


def _of_type(wanted: type, name: str) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not wanted:
            raise JsonError(f"is not {name}")
        return value

    return read


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (float, int)):
        raise JsonError("is not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise JsonError("is larger than any float") from error


_PLAIN: dict[Any, Reader] = {
    str: _of_type(str, "a text"),
    int: _of_type(int, "a whole number"),
    bool: _of_type(bool, "true or false"),
    types.NoneType: _of_type(types.NoneType, "null"),
    float: _float,
}


def _record(kind: type[Any]) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    others = bool(getattr(kind, "other_keys", False))
    needed = [field.name for field in fields(kind) if _is_needed(field)]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise JsonError("is not an object")
        table = cast("dict[str, Any]", value)
        found: dict[str, Any] = {}
        for key, item in table.items():
            if key in readers:
                found[key] = _under(key, readers[key], item)
            elif not others:
                raise JsonError("there is no such key").inside(key)
        for key in needed:
            if key not in table:
                raise JsonError("is missing").inside(key)
        return kind(**found)

    return read


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _under(key: object, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except JsonError as error:
        raise error.inside(key)  # noqa: B904 - it is the same error


def _bounded(read: Reader, bounds: Range) -> Reader:
    def bounded(value: Any) -> Any:
        number = read(value)
        bounds.check(number)
        return number

    return bounded


def _literal(texts: frozenset[str]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in texts:
            raise JsonError(f"is none of {', '.join(sorted(texts))}")
        return value

    return read


def _union(readers: list[Reader], none: bool) -> Reader:
    def read(value: Any) -> Any:
        if none and value is None:
            return None
        if len(readers) == 1:
            return readers[0](value)
        reasons: list[str] = []
        for each in readers:
            try:
                return each(value)
            except JsonError as error:
                reasons.append(error.reason)
        raise JsonError(", and ".join(reasons))

    return read


def _items(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise JsonError("is not an array")
    return list(cast("list[Any]", value))


def _row(read: Reader) -> Reader:
    return lambda value: tuple(
        _under(number, read, item) for number, item in enumerate(_items(value))
    )


def _rows(readers: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        items = _items(value)
        if len(items) != len(readers):
            raise JsonError(f"has {len(items)} items, not {len(readers)}")
        pairs = zip(readers, items, strict=True)
        return tuple(_under(number, *pair) for number, pair in enumerate(pairs))

    return read


def _table(read: Reader) -> Reader:
    def table(value: Any) -> Any:
        if type(value) is not dict:
            raise JsonError("is not an object")
        return {key: _under(key, read, item) for key, item in cast("dict[str, Any]", value).items()}

    return table
