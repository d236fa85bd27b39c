"""Comparisons, logic, bits, choice, and casts."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.tensors import DTYPES, Constant, type_name


def bit_shift(at: Lowering) -> Value:
    """Bits moved up or down."""
    direction = at.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise at.refuse(f"direction {direction!r} is not known")
    return at.emit("bit_shift", at.tensor(0), at.tensor(1), left=direction == "LEFT")


def is_nan(at: Lowering) -> Value:
    """Emit x != x, which holds for NaN alone."""
    x = at.tensor(0)
    return at.emit("bit_not", at.emit("equal", x, x))


def is_inf(at: Lowering) -> Value:
    """The infinities, or those of one sign."""
    x = at.tensor(0)
    if at.integer("detect_positive", 1) and at.integer("detect_negative", 1):
        return at.apply("equal", at.emit("abs", x), float("inf"))
    if at.integer("detect_positive", 1):
        return at.apply("equal", x, float("inf"))
    if at.integer("detect_negative", 1):
        return at.apply("equal", x, float("-inf"))
    return at.apply("less", x, float("-inf"))


def where(at: Lowering) -> Value:
    """The second operand where the first is true, else the third."""
    return at.emit("select", at.tensor(0), at.tensor(1), at.tensor(2))


def cast(at: Lowering) -> Value:
    """Another element type; nothing if it is the same."""
    kind = at.integer("to")
    if kind not in DTYPES:
        raise at.refuse(f"casts to {type_name(kind)} are not computed", code="onnx-dtype")
    return _cast(at, DTYPES[kind])


def cast_like(at: Lowering) -> Value:
    """The element type of the second operand."""
    return _cast(at, at.dtype(1))


def _cast(at: Lowering, dtype: np.dtype[np.generic]) -> Value:
    value = at.operand(0)
    if dtype not in DTYPES.values():
        raise at.refuse(f"casts to {dtype} are not computed", code="onnx-dtype")
    if isinstance(value, Constant):
        with np.errstate(all="ignore"):
            return Constant(value.array.astype(dtype), value.name)
    return at.cast(value, dtype)


def bit_cast(at: Lowering) -> Value:
    """The same bits as elements of another type of as many."""
    kind = at.integer("to")
    if kind not in DTYPES:
        raise at.refuse(f"bits of {type_name(kind)} are not read", code="onnx-dtype")
    return at.emit("bit_cast", at.tensor(0), to=DTYPES[kind].name)


def binarizer(at: Lowering) -> Value:
    """1 above a threshold, else 0, of the operand's type."""
    x = at.tensor(0)
    above = at.emit("bit_not", at.apply("less_equal", x, at.number("threshold")))
    return at.cast(above, at.dtype(0))
