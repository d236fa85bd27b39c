"""Functions of one element: the recipe of a graph's operation, and what its attributes say."""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp

from tilewright.numerics.operators import PARAMETERS

NAMES = {
    "clip": "clamp",
    "identity": "copy",
    "quantise_linear": "quantise",
    "dequantise_linear": "dequantise",
}
"""Operations of the graph whose recipe has another name."""


def is_power(scale: float) -> bool:
    """Return True if a scale is a power of two of which the inverse is a float, too."""
    fraction, exponent = frexp(scale)
    return fraction == 0.5 and -120 < exponent < 120


def scalars_of(operation: str, attributes: Mapping[str, object]) -> tuple[float, ...]:
    """The scalars of an operation's recipe; of a dequantisation all but its factor, an operand."""
    if operation == "quantise_linear":
        scale, zero = float(str(attributes["scale"])), float(str(attributes["zero"]))
        return 1 / scale if is_power(scale) else scale, zero
    if operation == "dequantise_linear":
        return (-float(str(attributes["zero"])),)
    parameters = PARAMETERS.get(operation, {})
    return tuple(float(str(attributes.get(*parameter))) for parameter in parameters.items())
