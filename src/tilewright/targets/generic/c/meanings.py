"""Meanings of functions of one element or two, for the header of a machine's C functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.numerics.element_types import Kind
from tilewright.numerics.operators import FUNCTIONS as REAL
from tilewright.targets.generic.functions import FUNCTIONS, TABLES

_COMMON: Mapping[str, str] = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "max": "the greater one",
    "min": "the lesser one",
    "relu": "the greater one of a and 0",
    "transpose": "a; the strides of the operand exchange the axes",
    "convert_layout": "a; the strides of the operand exchange the axes",
}

_ROUNDED = (
    "to the nearest integer, of two the even one, plus zero, at least minimum and at most maximum"
)

_INTEGER: Mapping[str, str] = {
    **_COMMON,
    "requantise_linear": f"the float32 (float)a * b {_ROUNDED}; a is an int32, b a float32",
    "dequantise_linear": "(float)(a - zero) * b, a float32; b is a float32",
    "quantise_linear": f"the float32 a / scale {_ROUNDED}",
    "add_linear": "the float32 (float)(a - first zero) * first factor + (float)(b - second zero) * "
    f"second factor, in three roundings, {_ROUNDED}",
    "mul_linear": "the float32 (float)((a - first zero) * (b - second zero)) * factor, the product "
    f"an int32, {_ROUNDED}",
    "look_up": f"entry a + 128 of the 256 bytes at the table's address in {TABLES}",
}

_FLOAT: Mapping[str, str] = {
    **_COMMON,
    **{name: _INTEGER[name] for name in ("dequantise_linear", "quantise_linear")},
    "div": "a / b",
    "pow": "a to the power b",
    "prelu": "a, or a * b where a is negative",
    "neg": "-a",
    "abs": "a without its sign",
    "clip": "a, at least minimum and at most maximum",
    "leaky_relu": "a, or a * alpha where a is negative",
}

_TABLE = "by table: of 257 entries t of 16 bits, i = (a + 32768) >> 8, t[i] + (((t[i + 1] - t[i]) "

_FIXED: Mapping[str, str] = {
    **_COMMON,
    "add": "a + b in 32 bits, both shifted to the larger of their binary points x and y",
    "sub": "a - b in 32 bits, both shifted to the larger of their binary points x and y",
    "mul": "a * b in 32 bits",
    "prelu": "a, or (a * b + half) >> y where a is negative; saturated",
    "neg": "-a, saturated",
    "abs": "a without its sign, saturated",
    "clip": "a, at least x and at most y",
    "leaky_relu": "a, or (a * x + half) >> 14 where a is negative; saturated",
    "requantise": "(a + half) >> (x - y), or a << (y - x), saturated to an element",
}


def meanings(names: Iterable[str], kind: Kind) -> Iterator[str]:
    """Yield lines that say what functions mean on elements of a kind."""
    known = {"fixed": _FIXED, "integer": _INTEGER, "float": _FLOAT}[kind]
    for name in names:
        function = FUNCTIONS.get(name)
        if name in known:
            yield f"{name}: {known[name]}"
        elif function is not None and kind == "fixed" and function.table:
            yield f"{name}: {_TABLE}* (a & 255) + 128) >> 8)"
        elif name in REAL and kind == "float":
            yield f"{name}: {written(name)}"


def written(name: str) -> str:
    """A function of one float as a formula."""
    text = REAL[name].c.replace("_##S", "").replace("(T)", "")
    for function in ("exp", "expm1", "log1p", "log", "tanh", "sqrt", "erf", "fmax", "fabs"):
        text = text.replace(f"F({function})", function)
    return text
