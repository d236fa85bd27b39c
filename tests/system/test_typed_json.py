"""JSON read into dataclasses: what is right is read, and what is not is told with its place."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter, ValidationError

from tilewright.system.typed_json import JsonError, Range, from_json, from_value, to_json

Colour = Literal["red", "green"]


@dataclass(frozen=True)
class Inner:
    """A part of the other."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    size: Annotated[int, Range(0, 9)]
    rate: float = 1.0


@dataclass(frozen=True)
class Outer:
    """A field of every type."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    name: str
    colour: Colour = "red"
    on: bool = False
    inner: Inner | None = None
    sizes: tuple[int | str, ...] = ()
    pair: tuple[str, float] = ("", 0.0)
    table: dict[str, Inner] = field(default_factory=dict[str, Inner])
    more: Any = None


def test_every_type_comes_back() -> None:
    text = (
        '{"name": "n", "colour": "green", "on": true, "inner": {"size": 3, "rate": 2},'
        ' "sizes": [1, "batch"], "pair": ["a", 1.5], "table": {"k": {"size": 0}}, "more": [{}]}'
    )
    found = from_json(Outer, text)
    inner, table = Inner(3, 2.0), {"k": Inner(0)}
    assert found == Outer("n", "green", True, inner, (1, "batch"), ("a", 1.5), table, [{}])
    assert type(found.inner and found.inner.rate) is float
    assert from_json(Outer, to_json(found, indent=1)) == found
    assert from_json(Outer, b'{"name": ""}') == Outer("")


def test_numbers_that_json_lacks_come_back() -> None:
    found = from_json(Inner, to_json(Inner(1, math.inf)))
    assert found.rate == math.inf
    assert math.isnan(from_json(Inner, '{"size": 1, "rate": NaN}').rate)


@pytest.mark.parametrize(
    ("text", "where", "reason"),
    [
        ("", "", "is no JSON"),
        ("[" * 99999, "", "is no JSON"),
        ('{"name": "' + "\\ud800", "", "is no JSON"),
        ('{"name": ' + "9" * 9999 + "}", "", "is no JSON"),
        (b'{"name": "\xff"}', "", "is no JSON"),
        ("[]", "", "is not an object"),
        ("{}", "name", "is missing"),
        ('{"name": 1}', "name", "is not a text"),
        ('{"name": "", "nmae": 1}', "nmae", "there is no such key"),
        ('{"name": "", "colour": "blue"}', "colour", "is none of green, red"),
        ('{"name": "", "colour": ["red"]}', "colour", "is none of green, red"),
        ('{"name": "", "on": 1}', "on", "is not true or false"),
        ('{"name": "", "inner": {"size": 10}}', "inner.size", "10 is not at least 0 and at most 9"),
        ('{"name": "", "inner": {"size": true}}', "inner.size", "is not a whole number"),
        ('{"name": "", "inner": {"size": 1.0}}', "inner.size", "is not a whole number"),
        ('{"name": "", "inner": {"size": 1, "rate": "2"}}', "inner.rate", "is not a number"),
        ('{"name": "", "sizes": {}}', "sizes", "is not an array"),
        ('{"name": "", "sizes": [1, null]}', "sizes.1", "is not a whole number, and is not a text"),
        ('{"name": "", "pair": ["a"]}', "pair", "has 1 items, not 2"),
        ('{"name": "", "pair": ["a", "b"]}', "pair.1", "is not a number"),
        ('{"name": "", "table": []}', "table", "is not an object"),
        ('{"name": "", "table": {"k": {"size": -1}}}', "table.k.size", "-1 is not at least 0"),
        (
            '{"name": "", "inner": {"size": 1, "rate": 1' + "0" * 400 + "}}",
            "inner.rate",
            "is larger",
        ),
    ],
)
def test_what_is_wrong_is_told(text: str | bytes, where: str, reason: str) -> None:
    with pytest.raises(JsonError) as caught:
        from_json(Outer, text)
    assert caught.value.where == where and caught.value.reason.startswith(reason)


def test_other_keys_are_left_alone_where_a_class_says_so() -> None:
    @dataclass(frozen=True)
    class Part:
        other_keys: ClassVar[bool] = True
        size: int

    assert from_value(Part, {"size": 1, "colour": []}) == Part(1)
    with pytest.raises(JsonError, match="is not a whole number"):
        from_value(Part, {"size": "1"})


def test_bounds_of_floats() -> None:
    above, finite = Range(above=0, high=1.0), Range(-1e308, 1e308)
    above.check(1e-300)
    for bounds, value in ((above, 0.0), (above, 1.5), (finite, math.inf), (finite, math.nan)):
        with pytest.raises(JsonError):
            bounds.check(value)


def test_a_field_of_another_type_is_not_written() -> None:
    with pytest.raises(JsonError, match="is not a whole number"):
        to_json(Inner(1.5))  # type: ignore[arg-type]


def test_a_type_that_is_not_read_is_a_mistake() -> None:
    @dataclass
    class Odd:
        values: list[int]

    with pytest.raises(TypeError, match="no field has type"):
        from_json(Odd, "{}")


PLAIN = st.none() | st.booleans() | st.integers(-2, 12) | st.floats() | st.sampled_from(["", "red"])
KEYS = st.sampled_from(["name", "colour", "inner", "sizes", "pair", "table", "size", "rate", "k"])
VALUES = st.recursive(
    PLAIN, lambda v: st.lists(v, max_size=2) | st.dictionaries(KEYS, v), max_leaves=6
)
ORACLE = TypeAdapter(Outer)


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES).map(lambda found: {"name": "", **found}))
def test_pydantic_agrees(value: dict[str, Any]) -> None:
    """Pydantic, in its strict mode, takes the same values; it does not know ``Range``."""
    text = json.dumps(value)
    try:
        read = from_json(Outer, text)
    except JsonError as error:
        if "is not at least" not in error.reason:
            with pytest.raises(ValidationError):
                ORACLE.validate_json(text, strict=True)
        return
    assert repr(ORACLE.validate_json(text, strict=True)) == repr(read)
