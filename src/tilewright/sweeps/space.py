"""The space of a sweep: the keys that are varied, and the points that their values span."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log, prod
from typing import TYPE_CHECKING, Any

from tilewright.errors import Problem, TilewrightError, nearest, refuse
from tilewright.machine.values import value_tables

if TYPE_CHECKING:
    from tilewright.machine import Machine

Value = int | float | str

MOST_VALUES = 100_000
"""Values of one key."""

MOST_POINTS = 1_000_000
"""Points of one sweep: their rows are held in memory until the file is written."""

FORMS = "64K..4M:2x, 1..9:+2 or 4,8,16"

_NUMBER = re.compile(
    r"([+-]?(?:\d{1,30}(?:_\d{1,30})*)?(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)([KMGT]?)"
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_RANGE = re.compile(r"(.+?)\.\.(.+?):(\+.+|.+x)")


@dataclass(frozen=True)
class Axis:
    """A key and the values that it takes, in the order in which they are tried."""

    key: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Point:
    """One machine for one model: what is planned for one row."""

    model: str
    planner: str
    values: tuple[tuple[str, Value], ...]
    """The machine's keys, in the order of the axes."""


@dataclass(frozen=True)
class Space:
    """Models, planners and the machine's keys: the points are all of their combinations."""

    models: tuple[str, ...]
    planners: tuple[str, ...]
    axes: tuple[Axis, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of models, planners and values of each key, outermost first."""
        return (len(self.models), len(self.planners), *(len(axis.values) for axis in self.axes))

    @property
    def count(self) -> int:
        """The number of points."""
        return prod(self.sizes)

    def point(self, index: Sequence[int]) -> Point:
        """The point of an index into models, planners and the values of each key."""
        model, planner, *places = index
        values = zip(self.axes, places, strict=True)
        return Point(
            self.models[model],
            self.planners[planner],
            tuple((axis.key, axis.values[place]) for axis, place in values),
        )

    def numbered(self, number: int) -> Point:
        """The point of a number, counted with the last key as the fastest."""
        index: list[int] = []
        for size in reversed(self.sizes):
            number, place = divmod(number, size)
            index.append(place)
        return self.point(index[::-1])

    def __iter__(self) -> Iterator[Point]:
        """All points, the last key varying fastest."""
        return (self.numbered(number) for number in range(self.count))


def axis_of(text: str) -> Axis:
    """The axis of ``KEY=VALUES``: ``memory.sram.bytes=64K..4M:2x``, ``clock_hz=4e8,8e8``.

    K, M, G and T stand for powers of 1,024. Raises TilewrightError (``sweep-vary``,
    ``sweep-range``).
    """
    key, separator, listed = text.partition("=")
    key = key.strip()
    if not separator or not key or not listed.strip():
        raise refuse("sweep-vary", f"{text!r} is not KEY=VALUES", "--vary", f"write {FORMS}")
    values: list[Value] = []
    for part in _parts(listed):
        if not part:
            raise refuse("sweep-vary", f"{text!r} has an empty value", "--vary", f"write {FORMS}")
        if key not in ("model", "planner") and ".." in part:
            values += _range(part, text)
        else:
            values.append(part if key in ("model", "planner") else _value(part))
    return axis(key, values)


def axis(key: str, values: Sequence[Value]) -> Axis:
    """An axis of values, each taken once; refuses (``sweep-range``) what has none or too many."""
    distinct = tuple(dict.fromkeys(values))
    if not distinct:
        raise refuse("sweep-range", "no value to try", key, f"give some: {FORMS}")
    if len(distinct) > MOST_VALUES:
        reason = f"{len(distinct):,} values; at most {MOST_VALUES:,} are tried"
        raise refuse("sweep-range", reason, key, "take larger steps")
    return Axis(key, distinct)


def _parts(listed: str) -> list[str]:
    """The texts between commas, but for those inside braces (a planner's options)."""
    parts, depth = [""], 0
    for letter in listed:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _value(text: str) -> Value:
    """A number where the text reads as one, with its unit; else the text."""
    match = _NUMBER.fullmatch(text)
    if match is None or not any(letter.isdigit() for letter in match[1]):
        return text
    digits = match[1].replace("_", "")
    unit = _UNITS[match[2]]
    if re.fullmatch(r"[+-]?\d+", digits):
        return int(digits) * unit
    number = float(digits) * unit
    # As ``--set`` reads it: 8e8 is a whole number.
    return int(number) if isfinite(number) and number.is_integer() else number


def _range(part: str, text: str) -> list[Value]:
    """The values of START..END:STEP, the end included where a step meets it."""
    match = _RANGE.fullmatch(part)
    where = f"--vary {text}"
    if match is None:
        raise refuse("sweep-range", f"{part!r} is no range", where, f"write {FORMS}")
    grows = match[3].endswith("x")
    begin, end, step = (_value(each.strip()) for each in (match[1], match[2], match[3].strip("+x")))
    if isinstance(begin, str) or isinstance(end, str) or isinstance(step, str):
        raise refuse("sweep-range", f"{part!r} has an end that is no number", where, FORMS)
    if not all(isfinite(number) for number in (begin, end, step)):
        raise refuse("sweep-range", f"{part!r} does not end", where, FORMS)
    if end < begin:
        reason = f"{part!r} is empty: it ends below its start"
        raise refuse("sweep-range", reason, where, "write the smaller value first")
    if (step <= 1 or begin <= 0) if grows else step <= 0:
        reason = f"{part!r} never reaches its end"
        help = "a factor above 1 from a start above 0" if grows else "a step above 0"
        raise refuse("sweep-range", reason, where, help)
    steps = log(end / begin) / log(step) if grows else (end - begin) / step
    if steps > MOST_VALUES:
        reason = f"{part!r} has {steps:,.0f} values; at most {MOST_VALUES:,} are tried"
        raise refuse("sweep-range", reason, where, "take larger steps")
    # A hair beyond the end is the end: fractions are not exact.
    values: list[Value] = []
    for number in range(int(steps) + 2):
        value = begin * step**number if grows else begin + number * step
        if value <= end * (1 + 1e-12 if end > 0 else 1 - 1e-12):
            values.append(int(value) if float(value).is_integer() else value)
    return values


def space_of(models: Sequence[str], planner: str, axes: Sequence[Axis], machine: Machine) -> Space:
    """The space of a sweep on variants of a machine.

    The keys ``model`` and ``planner`` add to what is given. Raises TilewrightError for keys that
    the machine has not (``sweep-key``, with the nearest), for a key that is varied twice
    (``sweep-vary``), for too many points (``sweep-range``), and without a model.
    """
    keys = [each.key for each in axes]
    check_keys(keys, machine)
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise refuse("sweep-vary", "is varied twice", twice[0], "list all of its values at once")
    special = {each.key: [str(value) for value in each.values] for each in axes}
    every = tuple(dict.fromkeys([*models, *special.get("model", ())]))
    if not every:
        raise refuse("sweep-vary", "no model to plan", "MODEL", "name one or more model files")
    planners = tuple(special.get("planner", [planner]))
    rest = tuple(each for each in axes if each.key not in ("model", "planner"))
    space = Space(every, planners, rest)
    if space.count > 1 << 62:
        raise refuse("sweep-range", "there are more than 2^62 points", "--vary", "vary fewer keys")
    return space


def check_keys(keys: Sequence[str], machine: Machine) -> None:
    """Refuse (``sweep-key``) keys that neither the machine nor a sweep has."""
    data = machine.to_json()
    known = [*value_tables(data), "fusion", "model", "planner"]
    known += [f"fusion.{fusion['name']}" for fusion in data["fusions"]]
    dims = tuple(
        f"primitive.{primitive['name']}.{table}."
        for primitive in data["primitives"]
        for table in ("limits", "multiples")
    )
    problems = [
        Problem(
            "sweep-key",
            f"{machine.name} has no such value, and a sweep none either",
            repr(key),
            nearest(key, known) or "tilewright targets FILE --json lists the machine",
        )
        for key in keys
        if key not in known and not (key.startswith(dims) and key.rpartition(".")[2])
    ]
    if problems:
        raise TilewrightError(problems)


def merged(axes: Mapping[str, Sequence[Any] | str]) -> list[Axis]:
    """The axes of a mapping: a key's values as a sequence, or as text (``64K..4M:2x``)."""
    return [
        axis_of(f"{key}={values}") if isinstance(values, str) else axis(key, list(values))
        for key, values in axes.items()
    ]
