"""The notation of shapes: sizes, names of free dims, and bounds, in Python and as text.

A dim of a shape is one of

    4                a size
    batch            a name, which begins as no number does: the dim stays free, under this name
    1..8  or  1..    bounds: the dim stays free, and its size lies within them
    batch:1..8       both
    32..224:+16      bounds, and the multiples of 16 alone
    _                as the model states it (None in Python)

and a shape as text separates its dims by commas, or by an ``x`` beside a digit: ``1x3x224x224``,
``batchx3x224x224``, ``batch:1..8,sequence:1..512``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

from tilewright.errors import TilewrightError, refuse

LARGEST_SIZE = 2**31 - 1
"""The largest size of one dim."""

LONGEST_NAME = 200
"""Characters of a dim's name."""


@dataclass(frozen=True, order=True)
class Bounds:
    """The sizes that a free dim may have: the multiples of ``step`` from ``low`` to ``high``."""

    low: int = 1
    high: int = LARGEST_SIZE
    step: int = 1

    def __post_init__(self) -> None:
        if self.step < 1 or self.low % self.step:
            reason = f"{self.low} is no multiple of {self.step}"
            raise refuse("shape-bounds", reason, help="sizes go up from a multiple of the step")
        if not 0 <= self.low <= self.high <= LARGEST_SIZE:
            raise refuse(
                "shape-bounds",
                f"{self.low}..{self.high} are no bounds of a size",
                help=f"sizes are 0 to {LARGEST_SIZE}, the lower bound first",
            )

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high and not size % self.step

    def __str__(self) -> str:
        high = "" if self.high == LARGEST_SIZE else str(self.high)
        return f"{self.low}..{high}" + (f":+{self.step}" if self.step > 1 else "")

    def near(self, size: int) -> int:
        """The nearest size within the bounds at or below one, or the lowest size."""
        return max(self.low, min(size, self.high) // self.step * self.step)


Size = int | str | Bounds | None
"""One dim of a shape, as the caller writes it."""

Shapes = Mapping[str, Size | Sequence[Size]]
"""By an input's name its shape, or by a free dim's name its size or bounds."""


@dataclass(frozen=True)
class Wish:
    """The size or bounds that the caller asks of one dim; none if all is None."""

    size: int | None = None
    name: str | None = None
    bounds: Bounds | None = None


def parse_size(value: object, where: str = "") -> Wish:
    """One dim; raises TilewrightError (``shape-form``, ``shape-bounds``)."""
    if value is None:
        return Wish()
    if isinstance(value, Bounds):
        return Wish(bounds=value)
    if isinstance(value, Integral) and value is not True and value is not False:
        if int(value) < 0:
            raise refuse("shape-form", f"size {value} is negative", where)
        if int(value) > LARGEST_SIZE:
            raise refuse("shape-form", f"size {value} is larger than {LARGEST_SIZE}", where)
        return Wish(size=int(value))
    if not isinstance(value, str):
        raise refuse("shape-form", f"size {value!r} is not a positive integer", where)
    text = value.strip()
    if re.fullmatch(r"\d+", text):
        return parse_size(int(text[:LONGEST_NAME]), where)
    if text == "_":
        return Wish()
    plain, separator, step = text.rpartition(":+")
    stepped = re.fullmatch(r"\d{1,9}", step) if separator else None
    name, separator, bounds = (plain if stepped else text).rpartition(":")
    if not separator and ".." in text:
        name, bounds = "", plain if stepped else text
    elif not separator:
        name, bounds = text, ""
    match = re.fullmatch(r"(\d{1,10})\.\.(\d{1,10})?", bounds)
    wrong_bounds = bool(bounds or separator or stepped) and match is None
    wrong_name = (
        bool(re.match(r"[-+.]*\d", name))
        or len(name) > LONGEST_NAME
        or (bool(separator) and not name)
    )
    if wrong_bounds or wrong_name:
        raise refuse(
            "shape-form",
            f"{text[:LONGEST_NAME]!r} is no dim",
            where,
            "a dim is 4, batch, 1..8, batch:1..8, 32..224:+16, or _",
        )
    if not text:
        raise refuse("shape-form", "a dim is missing", where, "separate dims by commas or by x")
    try:
        by = int(step) if stepped else 1
        limits = Bounds(int(match[1]), int(match[2] or LARGEST_SIZE), by) if match else None
    except TilewrightError as error:
        raise TilewrightError([replace(item, where=where) for item in error.problems]) from None
    return Wish(name=name or None, bounds=limits)


def parse_shape(value: Size | Sequence[Size], where: str = "") -> tuple[Wish, ...]:
    """A whole shape, from text or a sequence; raises TilewrightError."""
    if value is None or isinstance(value, Bounds):
        raise refuse("shape-form", f"{value} is no shape", where)
    if isinstance(value, str):
        parts = value.split(",") if "," in value else re.split(r"(?<=\d)x|x(?=\d)", value)
        return tuple(parse_size(part, where) for part in parts)
    if not isinstance(value, Iterable):
        return (parse_size(value, where),)
    return tuple(parse_size(size, where) for size in value)


def concrete(value: Size | Sequence[Size], where: str) -> tuple[int, ...]:
    """A shape of sizes alone, for models whose dims are all fixed.

    Raises TilewrightError (``shape-fixed``) for names and bounds.
    """
    wishes = parse_shape(value, where)
    sizes = tuple(wish.size for wish in wishes if wish.size is not None)
    if 0 in sizes:
        raise refuse("shape-form", "models of this kind take no size 0", where)
    if len(sizes) < len(wishes):
        raise refuse(
            "shape-fixed",
            "names and bounds are for dims that the model leaves free; here all have sizes",
            where,
            "give sizes, as in 1x3x224x224",
        )
    return sizes
