"""The number formats that a network can be compiled to, and what is chosen with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from tilewright.errors import choose, refuse
from tilewright.numerics.element_types import ELEMENTS, Element

ObserverName = Literal["minimum-maximum", "percentile", "mean-squared-error"]

OBSERVERS: tuple[ObserverName, ...] = get_args(ObserverName)
"""The names of the methods that choose ranges (observers.py); the first is the default."""


@dataclass(frozen=True)
class Format:
    """A number format for the elements of tensors."""

    name: str
    what: str
    power_of_two: bool = False
    """True if scales are powers of two."""
    per_channel: bool = False
    """True if constant weights have a scale for each output channel."""
    base: str = ""
    """The name of the element type, where it is another."""

    @property
    def element(self) -> Element:
        """The type of the elements."""
        return ELEMENTS[self.base or self.name]

    @property
    def kind(self) -> Literal["float32", "linear", "float"]:
        """``linear``: integers with a scale; ``float``: short floats; ``float32``: as they are."""
        if self.element.is_integer:
            return "linear"
        return "float32" if self.element.is_plain else "float"

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.element.bits

    @property
    def is_plain(self) -> bool:
        """True if it leaves the model's numbers as they are."""
        return self.kind == "float32"

    @property
    def has_bytes(self) -> bool:
        """True if it is one of integers of 8 bits."""
        return self.kind == "linear" and self.bits == 8


_FORMATS = (
    Format("float32", "floats of 32 bits, as the model has them"),
    Format(
        "int8",
        "integers of 8 bits: a scale for each output channel of weights, one for an activation",
        per_channel=True,
    ),
    Format(
        "int8-power-of-two",
        "integers of 8 bits whose scales are powers of two, one for each tensor",
        power_of_two=True,
        base="int8",
    ),
    Format("fixed16", "16-bit fixed point: a binary point for each tensor", True),
    Format("fixed8", "8-bit fixed point: a binary point for each tensor", True),
    Format("float16", "IEEE floats of 16 bits; arithmetic in float32"),
    Format("bfloat16", "the upper halves of float32; arithmetic in float32"),
)

FORMATS: Mapping[str, Format] = {item.name: item for item in _FORMATS}
"""Every format by its name on the command line."""


@dataclass(frozen=True)
class Numbers:
    """The number format of a compilation, with its observer and exceptions."""

    format: Format
    observer: ObserverName = "minimum-maximum"
    keep_float: tuple[str, ...] = ()
    """Nodes of the model that are to compute in float32."""
    equalise: bool = False
    """True if the ranges of activations' channels are equalised (pass equalise)."""

    @property
    def names(self) -> tuple[str, str | None, tuple[str, ...], bool | None]:
        """The arguments from which ``numbers_of`` makes equal numbers."""
        observer = self.observer if self.needs_ranges else None
        equalise = self.equalise if self.format.has_bytes else None
        return self.format.name, observer, self.keep_float, equalise

    @property
    def needs_ranges(self) -> bool:
        """True if the format's scales come from calibration."""
        return self.format.kind == "linear"


def numbers_of(
    format: str,
    observer: str | None = None,
    keep_float: tuple[str, ...] = (),
    equalise: bool | None = None,
) -> Numbers:
    """Numbers by their names; ``equalise`` is on by default where it gains much: in ``int8``.

    Raises TilewrightError (``numbers-format``, ``numbers-observer``, ``numbers-keep``,
    ``numbers-equalise``).
    """
    if format not in FORMATS:
        raise refuse(
            "numbers-format", f"no number format is called {format!r}", help=choose(format, FORMATS)
        )
    known = FORMATS[format]
    names: dict[str, ObserverName] = {name: name for name in OBSERVERS}
    if observer is not None and observer not in names:
        raise refuse(
            "numbers-observer", f"no observer is called {observer!r}",
            help=choose(observer, OBSERVERS),
        )  # fmt: skip
    if known.kind != "linear" and observer is not None:
        raise refuse(
            "numbers-observer",
            f"{format} has no scales for an observer to choose",
            help="leave the observer out",
        )
    if known.is_plain and keep_float:
        raise refuse(
            "numbers-keep", "everything is float32", help="leave the nodes that stay float out"
        )
    if equalise and not known.has_bytes:
        raise refuse(
            "numbers-equalise",
            f"channels are equalised for integers of 8 bits, not for {format}",
            help="leave the option out",
        )
    chosen = known.has_bytes and known.per_channel if equalise is None else equalise
    return Numbers(known, names[observer or "minimum-maximum"], keep_float, chosen)
