"""Maps of single elements: arithmetic, functions, logic, comparison, choice and conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from tilewright.frontends.stablehlo import patterns
from tilewright.frontends.stablehlo.lowering import Lowering, Rule
from tilewright.frontends.stablehlo.values import View
from tilewright.ir import SSAValue

Function = Callable[[Lowering, SSAValue], SSAValue]


def plain(operation: str) -> Rule:
    """The rule of what is one operation of the graph."""
    return lambda at: at.pointwise(operation, *at.views)


def function(build: Function) -> Rule:
    """The rule of a function of one element."""
    return lambda at: at.map(partial(build, at), at.views[0])


def maximum(at: Lowering) -> View:
    """max(x, y); with a number it is a ReLU, a bound, or nothing where the number is -inf."""
    return _bounded(at, "max", "minimum")


def minimum(at: Lowering) -> View:
    """min(x, y); with a number it is a bound, or nothing where the number is inf."""
    return _bounded(at, "min", "maximum")


def _bounded(at: Lowering, operation: str, bound: str) -> View:
    for x, y in (at.views, at.views[::-1]):
        number = y.number
        if number is None or x.number is not None or x.dtype.kind != "f":
            continue
        if operation == "max" and number == 0:
            return at.pointwise("relu", x)
        if np.isinf(number):
            nothing = (number < 0) == (operation == "max")
            if nothing:
                return x
        elif np.isfinite(number):
            return at.pointwise("clip", x, **{bound: float(number)})
    return at.pointwise(operation, *at.views)


def clamp(at: Lowering) -> View:
    """Emit min(max(x, low), high), element by element."""
    low, x, high = at.views
    bounds = [view.number for view in (low, high)]
    if x.dtype.kind == "f" and all(b is not None and np.isfinite(b) for b in bounds):
        return at.pointwise("clip", x, minimum=float(bounds[0]), maximum=float(bounds[1]))
    low, high = (_as_wide(at, view, x) for view in (low, high))
    return at.pointwise("min", at.pointwise("max", x, low), high)


def _as_wide(at: Lowering, view: View, x: View) -> View:
    """A bound, which may be a scalar, in the shape of what it bounds."""
    return view if view.shape == x.shape else at.placed(view, {}, x.shape)


def compare(at: Lowering) -> View:
    """A relation of two elements."""
    direction, (x, y) = at.text("comparison_direction"), at.views
    if at.text("compare_type") == "TOTALORDER" and x.dtype.kind == "f":
        raise at.unsupported("total order of floats, NaN and both zeros among them")
    if x.dtype == np.bool_ and direction not in ("EQ", "NE"):
        x, y = (at.converted(view, np.int8) for view in (x, y))
    match direction:
        case "EQ":
            return at.pointwise("equal", x, y)
        case "NE" if x.dtype == np.bool_:
            return at.pointwise("bit_xor", x, y)
        case "NE":
            return at.pointwise("bit_not", at.pointwise("equal", x, y))
        case "LT":
            return at.pointwise("less", x, y)
        case "LE":
            return at.pointwise("less_equal", x, y)
        case "GT":
            return at.pointwise("less", y, x)
        case "GE":
            return at.pointwise("less_equal", y, x)
        case _:
            raise at.refuse(f"comparison {direction!r} is not known")


def select(at: Lowering) -> View:
    """The second operand where the first is true, else the third; one condition may do for all."""
    condition, x, y = at.views
    if condition.number is not None:
        return x if bool(condition.number) else y
    chosen = at.pointwise("select", _as_wide(at, condition, x), x, y)
    return View(chosen.core, chosen.axes, x.shape)


def convert(at: Lowering) -> View:
    """Convert to another element type."""
    return at.converted(at.views[0], at.kind.dtype)


def divide(at: Lowering) -> View:
    """x / y; a sigmoid, a softmax or a mean where that is what it comes to."""
    plain = at.kind.dtype.kind in "iu"
    quotient = None if plain else patterns.divided(at, *at.views)
    return quotient or at.pointwise("div", *at.views)


def atan2(at: Lowering) -> View:
    """The angle of (x, y), where x is 1."""
    y, x = at.views
    if x.number is None or x.number != 1:
        raise at.unsupported("the angle of two numbers that are computed")
    return at.pointwise("atan", y)


def add(at: Lowering) -> View:
    """x + y; of booleans, whether either is true."""
    return at.pointwise("bit_or" if at.views[0].dtype == np.bool_ else "add", *at.views)


def multiply(at: Lowering) -> View:
    """x * y; of booleans, whether both are true."""
    if at.kind.dtype == np.bool_:
        return at.pointwise("bit_and", *at.views)
    return patterns.multiplied(at, *at.views) or at.pointwise("mul", *at.views)


def remainder(at: Lowering) -> View:
    """The remainder of x / y with the sign of x."""
    return at.pointwise("mod", *at.views, truncated=True)


def shift(*, left: bool, arithmetic: bool = False) -> Rule:
    """The rule of a shift by fewer places than there are bits; others are refused."""

    def rule(at: Lowering) -> View:
        x, count = at.views
        places, bits = count.known, 8 * x.dtype.itemsize
        if places is None or (places < 0).any() or (places >= bits).any():
            raise at.unsupported("shifts by a number of places that is not constant or too large")
        if not left and arithmetic != (x.dtype.kind == "i"):
            raise at.unsupported("shifts that treat signed numbers as unsigned ones, or vice versa")
        return at.pointwise("bit_shift", x, count, left=left)

    return rule


def rsqrt(at: Lowering, x: SSAValue) -> SSAValue:
    """Emit 1 / sqrt(x), element by element."""
    root = at.emit("sqrt", x)
    return at.emit("div", at.made(1.0, x), root)


def exp_minus_one(at: Lowering, x: SSAValue) -> SSAValue:
    """exp(x) - 1; near 0 by tanh, as 2 t / (1 - t) with t = tanh(x / 2), which cancels nothing."""
    t = at.emit("tanh", at.apply("mul", x, 0.5))
    near = at.emit("div", at.apply("mul", t, 2.0), at.emit("sub", at.made(1.0, x), t))
    far = at.apply("sub", at.emit("exp", x), 1.0)
    return at.emit("select", at.apply("less", at.emit("abs", x), 0.5), near, far)


def log_of_one_more(at: Lowering, x: SSAValue) -> SSAValue:
    """log(1 + x); near 0 as 2 atanh(x / (x + 2)), which cancels nothing."""
    near = at.apply("mul", at.emit("atanh", at.emit("div", x, at.apply("add", x, 2.0))), 2.0)
    far = at.emit("log", at.apply("add", x, 1.0))
    return at.emit("select", at.apply("less", at.emit("abs", x), 0.5), near, far)


def cube_root(at: Lowering, x: SSAValue) -> SSAValue:
    """The real cube root."""
    return at.emit("mul", at.emit("sign", x), at.apply("pow", at.emit("abs", x), 1.0 / 3.0))


def round_away(at: Lowering, x: SSAValue) -> SSAValue:
    """The nearest integer, of two the one further from 0."""
    size = at.emit("abs", x)
    whole = at.emit("floor", size)
    # size + 0.5 would round 0.49999997 up.
    up = at.apply("less_equal", at.made(0.5, x), at.emit("sub", size, whole))
    rounded = at.emit("select", up, at.apply("add", whole, 1.0), whole)
    return at.emit("mul", at.emit("sign", x), rounded)


def is_finite(at: Lowering, x: SSAValue) -> SSAValue:
    """Emit a comparison, true where x is neither infinite nor NaN."""
    return at.apply("less", at.emit("abs", x), float("inf"))


def erfc(at: Lowering, x: SSAValue) -> SSAValue:
    """Emit 1 - erf(x), element by element."""
    return at.emit("sub", at.made(1.0, x), at.emit("erf", x))


FUNCTIONS: Mapping[str, Function] = {
    "stablehlo.rsqrt": rsqrt,
    "stablehlo.exponential_minus_one": exp_minus_one,
    "stablehlo.log_plus_one": log_of_one_more,
    "stablehlo.cbrt": cube_root,
    "stablehlo.round_nearest_afz": round_away,
    "stablehlo.is_finite": is_finite,
    "chlo.erfc": erfc,
    "chlo.square": lambda at, x: at.emit("mul", x, x),
}

_SAME = "abs ceil floor log sign sqrt tan tanh"
_SAME_IN_CHLO = "acos acosh asin asinh atan atanh cosh erf sinh tan"

PLAIN: Mapping[str, str] = {
    **{f"stablehlo.{name}": name for name in _SAME.split()},
    **{f"chlo.{name}": name for name in _SAME_IN_CHLO.split()},
    "stablehlo.and": "bit_and",
    "stablehlo.cosine": "cos",
    "stablehlo.exponential": "exp",
    "stablehlo.logistic": "sigmoid",
    "stablehlo.negate": "neg",
    "stablehlo.not": "bit_not",
    "stablehlo.or": "bit_or",
    "stablehlo.power": "pow",
    "stablehlo.round_nearest_even": "round",
    "stablehlo.sine": "sin",
    "stablehlo.subtract": "sub",
    "stablehlo.xor": "bit_xor",
}
"""Operations of the graph that are each the whole meaning of one."""

ELEMENTWISE: Mapping[str, Rule] = {
    **{name: plain(operation) for name, operation in PLAIN.items()},
    **{name: function(build) for name, build in FUNCTIONS.items()},
    "stablehlo.add": add,
    "stablehlo.atan2": atan2,
    "stablehlo.clamp": clamp,
    "stablehlo.compare": compare,
    "stablehlo.convert": convert,
    "stablehlo.divide": divide,
    "stablehlo.maximum": maximum,
    "stablehlo.minimum": minimum,
    "stablehlo.multiply": multiply,
    "stablehlo.remainder": remainder,
    "stablehlo.select": select,
    "stablehlo.shift_left": shift(left=True),
    "stablehlo.shift_right_arithmetic": shift(left=False, arithmetic=True),
    "stablehlo.shift_right_logical": shift(left=False),
}
"""The rules by operation."""
