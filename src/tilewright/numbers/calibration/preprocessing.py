"""The preprocessing of an image before it enters a network, as the command line states it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.errors import TilewrightError, refuse

Channels = Literal["rgb", "bgr", "grey"]

MAX_EXTENT = 1 << 14
"""Rows or columns of an image that enters a network."""


@dataclass(frozen=True)
class Preprocessing:
    """(pixel - mean) * scale, per channel, of images brought to a network's size.

    Pixels are 0 to 255. ``channels`` is the order in which mean, scale and the network have them.
    """

    size: tuple[int, int] | None = None
    """Rows and columns; None takes the network's own."""
    mean: tuple[float, ...] = (0.0,)
    """One number for all channels, or one for each."""
    scale: tuple[float, ...] = (1.0,)
    channels: Channels = "rgb"
    crop: bool = False
    """Scale the shorter side to the size and cut the middle out, instead of stretching both."""


def preprocessing_of(text: str) -> Preprocessing:
    """Read the options of preprocessing:
    ``size=224x224,mean=124:116:104,scale=0.0171,channels=bgr,fit=crop``.

    Every part may be left out. Raises TilewrightError (``option-preprocess``).
    """
    steps = Preprocessing()
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        match key:
            case "size":
                steps = replace(steps, size=_size(value))
            case "mean":
                steps = replace(steps, mean=_numbers(value))
            case "scale":
                steps = replace(steps, scale=_numbers(value))
            case "channels" if value == "rgb" or value == "bgr" or value == "grey":
                steps = replace(steps, channels=value)
            case "fit" if value in ("stretch", "crop"):
                steps = replace(steps, crop=value == "crop")
            case _:
                raise _unreadable(part)
    return steps


def _unreadable(part: str) -> TilewrightError:
    return refuse(
        "option-preprocess",
        f"{part!r} is none of size=224x224, mean=1:2:3, scale=0.5, channels=rgb|bgr|grey, "
        "fit=stretch|crop",
        "--preprocess",
    )


def _size(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    if not (rows.isascii() and rows.isdigit() and columns.isascii() and columns.isdigit()):
        raise _unreadable(f"size={text}")
    size = int(rows[:9]), int(columns[:9])
    if not all(1 <= extent <= MAX_EXTENT for extent in size):
        raise _unreadable(f"size={text}")
    return size


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(item) for item in text.split(":"))
    except ValueError:
        raise _unreadable(text) from None
    if len(numbers) > 4 or not all(math.isfinite(item) for item in numbers):
        raise _unreadable(text)
    return numbers
