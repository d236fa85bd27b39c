"""JSON read into records: what is right is read, and what is not is told with its place."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct, field

from tilewright.system.typed_json import JsonError, from_json, from_value, to_json

Colour = Literal["red", "green"]


class Inner(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the other."""

    size: Annotated[int, Meta(ge=0, le=9)]
    rate: float = 1.0
    share: Annotated[float, Meta(gt=0, le=sys.float_info.max)] = 1.0


class Outer(Struct, frozen=True, forbid_unknown_fields=True):
    """A field of every type."""

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
    ("text", "reason"),
    [
        ("", "is no JSON"),
        ("[" * 99999, "is no JSON"),
        ('{"name": "' + "\\ud800", "is no JSON"),
        ('{"name": ' + "9" * 9999 + "}", "is no JSON"),
        (b'{"name": "\xff"}', "is no JSON"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "Object missing required field `name`"),
        ('{"name": 1}', "Expected `str`, got `int` - at `$.name`"),
        ('{"name": "", "nmae": 1}', "Object contains unknown field `nmae`"),
        ('{"name": "", "colour": "blue"}', "Invalid enum value 'blue' - at `$.colour`"),
        ('{"name": "", "colour": ["red"]}', "Expected `str`, got `array` - at `$.colour`"),
        ('{"name": "", "on": 1}', "Expected `bool`, got `int` - at `$.on`"),
        ('{"name": "", "inner": {"size": 10}}', "Expected `int` <= 9 - at `$.inner.size`"),
        ('{"name": "", "inner": {"size": 1' + "0" * 40 + "}}", "Expected `int` <= 9 - at"),
        ('{"name": "", "inner": {"size": true}}', "Expected `int`, got `bool` - at"),
        ('{"name": "", "inner": {"size": 1.0}}', "Expected `int`, got `float` - at"),
        ('{"name": "", "inner": {"size": 1, "rate": "2"}}', "Expected `float`, got `str` - at"),
        ('{"name": "", "inner": {"size": 1, "share": 0}}', "Expected `float` > 0.0 - at"),
        ('{"name": "", "inner": {"size": 1, "share": NaN}}', "Expected `float` > 0.0 - at"),
        ('{"name": "", "inner": {"size": 1, "share": Infinity}}', "Expected `float` <= 1.79"),
        ('{"name": "", "inner": {"size": 1, "rate": 1' + "0" * 400 + "}}", "Number out of range"),
        ('{"name": "", "sizes": {}}', "Expected `array`, got `object` - at `$.sizes`"),
        ('{"name": "", "sizes": [1, null]}', "Expected `int | str`, got `null` - at `$.sizes[1]`"),
        ('{"name": "", "pair": ["a"]}', "Expected `array` of length 2, got 1 - at `$.pair`"),
        ('{"name": "", "pair": ["a", "b"]}', "Expected `float`, got `str` - at `$.pair[1]`"),
        ('{"name": "", "table": []}', "Expected `object`, got `array` - at `$.table`"),
        ('{"name": "", "table": {"k": {"size": -1}}}', "Expected `int` >= 0 - at `$.table[...].s"),
    ],
)
def test_what_is_wrong_is_told(text: str | bytes, reason: str) -> None:
    with pytest.raises(JsonError) as caught:
        from_json(Outer, text)
    assert str(caught.value).startswith(reason)


def test_other_keys_are_left_alone_where_a_class_says_so() -> None:
    class Part(Struct, frozen=True):
        size: int

    assert from_value(Part, {"size": 1, "colour": []}) == Part(1)


def test_a_field_of_another_type_is_not_written() -> None:
    with pytest.raises(JsonError, match=r"Expected `int`, got `float` - at `\$.size`"):
        to_json(Inner(1.5))  # type: ignore[arg-type]
