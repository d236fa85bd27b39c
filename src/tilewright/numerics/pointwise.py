"""Maps by name: on float32 and other plain elements, and on fixed point.

``evaluate`` is what an operation of that name means to every interpreter and simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.numerics import affine, tables
from tilewright.numerics import fixed as fixed_point
from tilewright.numerics.arrays import Array
from tilewright.numerics.codes import FORMATS
from tilewright.numerics.element_types import dtype_named, element_of_dtype, rounded

Attributes = Mapping[str, Any]


def evaluate(
    operation: str,
    arrays: Sequence[Array],
    *,
    fixed: bool = False,
    fractions: Sequence[int] = (),
    result_fraction: int = 0,
    result_dtype: Any = np.int16,
    attributes: Attributes | None = None,
) -> Array:
    """The map ``operation`` of one or two arrays that broadcast.

    If ``fixed``, arrays hold fixed-point integers with binary points ``fractions``, and a table
    function's or requantise's result has ``result_fraction``, requantise's ``result_dtype``. Raises
    KeyError for an unknown operation.
    """
    values = attributes or {}
    if fixed:
        if operation in tables.FUNCTIONS:
            parameters = tables.parameters_of(operation, values)
            entries = tables.table(operation, fractions[0], result_fraction, parameters)
            return tables.interpolate(entries, arrays[0])
        if operation == "requantise":
            return fixed_point.requantise(arrays[0], fractions[0], result_fraction, result_dtype)
        return FIXED[operation](arrays, fractions, values)
    if operation in tables.FUNCTIONS:
        return tables.FUNCTIONS[operation](arrays[0], *tables.parameters_of(operation, values))
    return PLAIN[operation](arrays, values)


def _clip(arrays: Sequence[Array], values: Attributes) -> Array:
    result = arrays[0]
    if "minimum" in values:
        result = np.maximum(result, result.dtype.type(values["minimum"]))
    if "maximum" in values:
        result = np.minimum(result, result.dtype.type(values["maximum"]))
    return result


def _leaky_relu(arrays: Sequence[Array], values: Attributes) -> Array:
    x = arrays[0]
    return np.where(x < 0, x * x.dtype.type(values["alpha"]), x)


def _prelu(arrays: Sequence[Array], _: Attributes) -> Array:
    x, slope = arrays
    return np.where(x < 0, x * slope, x)


def _divide(arrays: Sequence[Array], _: Attributes) -> Array:
    x, y = arrays
    if x.dtype.kind == "f":
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return x / y
    with np.errstate(all="ignore"):
        # Towards zero. The least integer has no magnitude of its own type.
        return (x - np.fmod(x, y)) // y


def _power(arrays: Sequence[Array], _: Attributes) -> Array:
    x, y = arrays
    with np.errstate(all="ignore"):
        if x.dtype.kind not in "iu":
            result = np.power(x, y)
            if not (half := y == 0.5).any():
                return result
            # NumPy takes the root if the exponent is one number: of -0 and minus infinity another.
            root = np.where(np.isneginf(x), np.inf, np.abs(result)).astype(result.dtype)
            return np.where(half, root, result)
        # NumPy refuses negative exponents of integers.
        sign = np.where((x == 1) | (x + 1 == 0), np.where(y & 1, x, 1), 0)
        return np.where(y < 0, sign, np.power(x, np.maximum(y, 0))).astype(x.dtype)


def _remainder(arrays: Sequence[Array], values: Attributes) -> Array:
    """The remainder with the sign of the divisor, or of the dividend if ``truncated``."""
    with np.errstate(all="ignore"):
        return (np.fmod if values.get("truncated") else np.mod)(arrays[0], arrays[1])


def _quantise_linear(arrays: Sequence[Array], values: Attributes) -> Array:
    if len(arrays) == 1:
        return affine.quantise_by(arrays[0], values)
    return affine.quantise(arrays[0], arrays[1], arrays[2])


def _dequantise_linear(arrays: Sequence[Array], values: Attributes) -> Array:
    zero = arrays[2] if len(arrays) == 3 else np.asarray(int(values["zero"]), np.int32)
    return affine.dequantise(arrays[0], arrays[1], zero)


def _cast(arrays: Sequence[Array], values: Attributes) -> Array:
    """Convert to another element type: floats to integers towards zero; anything but 0 is true."""
    to = dtype_named(str(values["to"]))
    with np.errstate(all="ignore"):
        if to.name in FORMATS:
            return encoded(arrays[0], to, saturate=bool(values.get("saturate")))
        floats = arrays[0].dtype.kind not in "iub"
        if values.get("saturate"):
            return rounded(arrays[0], element_of_dtype(to), saturate=True)
        return whole(arrays[0], to) if floats and to.kind in "iu" else arrays[0].astype(to)


def encoded(x: Array, to: np.dtype[Any], *, saturate: bool) -> Array:
    """Numbers as codes: floats to the nearest, the even one of two; of integers the lowest bits.

    What lies beyond a float's largest number becomes infinite, or what is no number, or, with
    ``saturate``, that number, infinities too. float64 goes by way of float32, as ml_dtypes has it.
    Floats become integers towards zero.
    """
    form = FORMATS[to.name]
    if x.dtype.name in FORMATS:
        x = x.astype(np.float32)
    if form.fraction is None:
        codes = (whole(x, np.dtype(np.int8)) if x.dtype.kind not in "iub" else x).astype(np.uint8)
        return (codes & np.uint8(2**form.bits - 1)).view(to)
    if saturate:
        limit = float(np.uint8(form.most).view(to))
        x = np.clip(x if x.dtype.kind not in "iub" else x.astype(np.float64), -limit, limit)
    return x.astype(to)


def whole(x: Array, to: np.dtype[Any]) -> Array:
    """Floats as integers, towards zero, as x86 has it (NumPy's own result hangs on the processor).

    They go by way of int32, or int64 for uint32 and 64 bits: what that does not hold, NaN among
    it, is its least integer, and what ``to`` does not hold wraps around.
    """
    wide = np.dtype(np.int64 if to.itemsize == 8 or to == np.uint32 else np.int32)
    least = float(np.iinfo(wide).min)
    x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    signed = np.where((x >= least) & (x < -least), x, least).astype(wide).astype(to)
    if to != np.uint64:
        return signed
    large = (x >= -least) & (x < -2 * least)
    return np.where(large, np.where(large, x, 0).astype(np.uint64), signed)


def _quiet(function: Callable[..., Array]) -> Callable[[Sequence[Array], Attributes], Array]:
    """A function of NumPy's that gives NaN or infinity outside its domain without a warning."""

    def evaluated(arrays: Sequence[Array], _: Attributes) -> Array:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return evaluated


def _shift(arrays: Sequence[Array], values: Attributes) -> Array:
    x, count = arrays
    return np.left_shift(x, count) if values.get("left") else np.right_shift(x, count)


_ANGLES = ("sin", "cos", "tan", "sinh", "cosh")

PLAIN: Mapping[str, Callable[[Sequence[Array], Attributes], Array]] = {
    "relu": lambda arrays, _: np.maximum(arrays[0], 0),
    "clip": _clip,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "neg": lambda arrays, _: np.negative(arrays[0]),
    "abs": lambda arrays, _: np.abs(arrays[0]),
    "add": _quiet(np.add),
    "sub": _quiet(np.subtract),
    "mul": _quiet(np.multiply),
    "div": _divide,
    "pow": _power,
    "max": lambda arrays, _: np.maximum(arrays[0], arrays[1]),
    "min": lambda arrays, _: np.minimum(arrays[0], arrays[1]),
    "sign": lambda arrays, _: np.sign(arrays[0]),
    "round": _quiet(np.rint),
    **{name: _quiet(getattr(np, name)) for name in ("floor", "ceil", *_ANGLES)},
    **{f"a{name}": _quiet(getattr(np, f"arc{name}")) for name in (*_ANGLES, "tanh")},
    "mod": _remainder,
    "equal": lambda arrays, _: np.equal(arrays[0], arrays[1]),
    "less": lambda arrays, _: np.less(arrays[0], arrays[1]),
    "less_equal": lambda arrays, _: np.less_equal(arrays[0], arrays[1]),
    "bit_and": lambda arrays, _: np.bitwise_and(arrays[0], arrays[1]),
    "bit_or": lambda arrays, _: np.bitwise_or(arrays[0], arrays[1]),
    "bit_xor": lambda arrays, _: np.bitwise_xor(arrays[0], arrays[1]),
    "bit_not": lambda arrays, _: np.invert(arrays[0]),
    "bit_shift": _shift,
    "select": lambda arrays, _: np.where(arrays[0], arrays[1], arrays[2]),
    "cast": _cast,
    "bit_cast": lambda arrays, values: arrays[0].view(dtype_named(str(values["to"]))),
    "quantise_linear": _quantise_linear,
    "dequantise_linear": _dequantise_linear,
    "requantise_linear": lambda arrays, values: affine.requantise(arrays[0], arrays[1], values),
    "add_linear": lambda arrays, values: affine.add(arrays[0], arrays[1], values),
    "mul_linear": lambda arrays, values: affine.multiply(arrays[0], arrays[1], values),
    "look_up": lambda arrays, values: affine.look_up(arrays[0], values),
}
"""Meanings on plain elements, table functions apart."""


def bound(value: float, fraction: int, dtype: np.dtype[Any]) -> int:
    """A float as an integer of a dtype at a binary point: half to even, saturated."""
    limits = np.iinfo(dtype)
    return round(min(max(value * 2.0**fraction, limits.min), limits.max))


def clip_bounds(values: Attributes, fraction: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the greatest integer that a clip leaves, at a binary point."""
    low, high = values.get("minimum", -np.inf), values.get("maximum", np.inf)
    return bound(low, fraction, dtype), bound(high, fraction, dtype)


def _clip_fixed(arrays: Sequence[Array], fractions: Sequence[int], values: Attributes) -> Array:
    return np.clip(arrays[0], *clip_bounds(values, fractions[0], arrays[0].dtype))


def _sloped(x: Array, slope: Array | int, fraction: int) -> Array:
    """x, or (x*slope + half) >> fraction where x is negative; saturated to x's dtype."""
    wide = x.astype(np.int64)
    scaled = (wide * slope + (1 << (fraction - 1))) >> fraction
    return fixed_point.saturate(np.where(wide < 0, scaled, wide), x.dtype)


def _leaky_relu_fixed(arrays: Sequence[Array], _: Sequence[int], values: Attributes) -> Array:
    if "factor" in values:
        slope, shift = values["factor"]
        wide = arrays[0].astype(np.int64)
        return fixed_point.saturate(np.where(wide < 0, wide * slope, wide << shift), np.int32)
    fraction = fixed_point.SLOPE_FRACTION
    slope = bound(values["alpha"], fraction, np.dtype(np.int16))
    return _sloped(arrays[0], slope, fraction)


def _aligned(
    arrays: Sequence[Array], fractions: Sequence[int], values: Attributes
) -> tuple[Array, Array]:
    """Two operands as int64 at one binary point.

    That is the larger of theirs, or ``guard`` bits after the smaller: then they are cut there.
    """
    guard = values.get("guard")
    point = max(fractions) if guard is None else min(fractions) + guard
    x, y = (
        array.astype(np.int64) << max(point - fraction, 0) >> max(fraction - point, 0)
        for array, fraction in zip(arrays, fractions, strict=True)
    )
    return x, y


FIXED: Mapping[str, Callable[[Sequence[Array], Sequence[int], Attributes], Array]] = {
    "relu": lambda arrays, _, __: np.maximum(arrays[0], 0),
    "clip": _clip_fixed,
    "leaky_relu": _leaky_relu_fixed,
    "prelu": lambda arrays, fractions, _: _sloped(
        arrays[0], arrays[1].astype(np.int64), fractions[1]
    ),
    "neg": lambda arrays, _, __: fixed_point.saturate(-arrays[0].astype(np.int64), arrays[0].dtype),
    "abs": lambda arrays, _, __: fixed_point.saturate(
        np.abs(arrays[0].astype(np.int64)), arrays[0].dtype
    ),
    "add": lambda x, at, values: fixed_point.wrap32(np.add(*_aligned(x, at, values))),
    "sub": lambda x, at, values: fixed_point.wrap32(np.subtract(*_aligned(x, at, values))),
    "mul": lambda arrays, _, __: fixed_point.wrap32(np.multiply(*arrays, dtype=np.int64)),
    "max": lambda arrays, _, __: np.maximum(arrays[0], arrays[1]),
    "min": lambda arrays, _, __: np.minimum(arrays[0], arrays[1]),
}
"""Meanings on fixed point, table functions and requantise apart."""
