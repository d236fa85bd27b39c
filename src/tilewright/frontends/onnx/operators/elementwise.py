"""Activations, arithmetic, comparisons, bits, choice and casts, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Map, Value, dtype_of_value
from tilewright.frontends.onnx.tensors import DTYPES, Constant, type_name
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operation import Operation
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of
from tilewright.numerics import pointwise
from tilewright.numerics.codes import FLOAT_CODES

LARGEST = float(np.finfo(np.float32).max)
"""Stands for "no bound"."""


def unary(operation: str, **attributes: float) -> Map:
    """The rule of one operation of one operand, with the defaults of its attributes."""

    def rule(at: Lowering) -> SSAValue:
        numbers = {name: at.number(name, default) for name, default in attributes.items()}
        return at.emit(operation, at.tensor(0), **numbers)

    return rule


def prelu(at: Lowering) -> Value:
    """x, or slope * x below zero; the slope broadcasts to x."""
    shape, slope = at.shape(0), at.shape(1)
    if len(slope) > len(shape) or any(
        have not in (1, want) for have, want in zip(slope[::-1], shape[::-1], strict=False)
    ):
        raise at.misfit(f"the slope {list(slope)} does not broadcast to {list(shape)}")
    return at.emit("prelu", at.tensor(0), at.tensor(1))


def clip(at: Lowering) -> Value:
    """x within bounds: attributes before operator set 11, operands since."""
    if at.version < 11:
        bounds = [at.attributes.get("min"), at.attributes.get("max")]
    else:
        if any(at.has(index) and at.constant(index) is None for index in (1, 2)):
            return _clip_by_tensors(at)
        if at.dtype(0) != np.float32:
            return _clip_by_tensors(at)
        bounds = [at.scalar_at(1, "minimum"), at.scalar_at(2, "maximum")]
    low, high = (bound if isinstance(bound, (int, float)) else None for bound in bounds)
    return _clipped(at, at.tensor(0), low, high)


def _clipped(at: Lowering, x: SSAValue, low: float | None, high: float | None) -> SSAValue:
    """x within bounds that are known, or x if they bound nothing."""
    if low != low or high != high:
        raise at.refuse("a bound is not a number")
    low = None if low is None or low <= -LARGEST else low
    high = None if high is None or high >= LARGEST else high
    if high is None:
        if low is None:
            return x
        return at.emit("relu", x) if low == 0 else at.emit("clip", x, minimum=_finite(low))
    if low is None:
        return at.emit("clip", x, maximum=_finite(high))
    # Where the bounds cross, ONNX gives the upper one.
    return at.emit("clip", x, minimum=_finite(min(low, high)), maximum=_finite(high))


def _finite(bound: float) -> float:
    """A bound as an attribute, which holds finite numbers."""
    return float(min(max(bound, -LARGEST), LARGEST))


def _clip_by_tensors(at: Lowering) -> SSAValue:
    """Bounds that are computed at run time."""
    x = at.tensor(0)
    for index, operation in ((1, "max"), (2, "min")):
        if at.has(index):
            x = at.emit(operation, x, at.tensor(index))
    return x


def direct(operation: str, *, swapped: bool = False) -> Map:
    """The rule of one operation of operands that broadcast; ``swapped`` turns their order."""

    def rule(at: Lowering) -> SSAValue:
        operands = [at.tensor(index) for index in range(len(at.operands))]
        return at.emit(operation, *(operands[::-1] if swapped else operands))

    return rule


def variadic(operation: str) -> Map:
    """The rule of an operator that joins any number of operands, two at a time."""

    def rule(at: Lowering) -> SSAValue:
        result = at.tensor(0)
        for index in range(1, len(at.operands)):
            result = at.emit(operation, result, at.tensor(index))
        return result

    return rule


def extremum(operation: str) -> Map:
    """Max or Min; against one number it is a clip, as exporters write ReLU6."""

    def rule(at: Lowering) -> SSAValue:
        constants = [v for v in at.operands if isinstance(v, Constant)]
        tensors = [v for v in at.operands if isinstance(v, SSAValue)]
        if len(constants) == len(tensors) == 1 and constants[0].array.size == 1:
            fits = constants[0].array.ndim <= len(shape_of(tensors[0]))
            bound = constants[0].array
            if fits and bound.dtype == np.float32 and not np.isnan(bound).any():
                number = float(bound.reshape(-1)[0])
                if operation == "max":
                    return _clipped(at, tensors[0], number, None)
                return _clipped(at, tensors[0], None, number)
        return variadic(operation)(at)

    return rule


def mean(at: Lowering) -> Value:
    """The mean of any number of operands."""
    total = variadic("add")(at)
    return total if len(at.operands) == 1 else at.apply("mul", total, 1 / len(at.operands))


def reciprocal(at: Lowering) -> Value:
    """Emit 1 / x as a division."""
    x = at.tensor(0)
    return at.emit("div", at.weight(np.array(1, at.dtype(0)), f"{at.node.name}.one"), x)


def power(at: Lowering) -> Value:
    """x ** y of x's type; where one is an integer and the other a float, by way of float64."""
    x, exponent = at.tensor(0), at.constant(1)
    if exponent is not None and exponent.size == 1 and exponent.ndim <= len(at.shape(0)):
        number = float(exponent.reshape(-1)[0])
        if number == 1:
            return x
        if number == 2:
            return at.emit("mul", x, x)
        if number == 0.5 and at.dtype(0).kind == "f" and _is_no_less_than_zero(at, x, 8):
            return at.emit("sqrt", x)  # Else it is 0 for -0, and infinite for minus infinity.
    if at.dtype(0).kind == at.dtype(1).kind == "f":
        wide = at.dtype(0)
    elif at.dtype(0).kind == "f":
        exact = exponent is not None and (exponent.astype(np.float32) == exponent).all()
        wide = at.dtype(0) if exact else np.dtype(np.float64)
    else:
        wide = np.dtype(np.float64 if at.dtype(1).kind == "f" else np.int64)
    result = at.emit("pow", at.cast(x, wide), at.cast(at.tensor(1), wide))
    return at.cast(result, at.dtype(0))


def _is_no_less_than_zero(at: Lowering, x: SSAValue, depth: int) -> bool:
    """Return True if a value is above zero, +0 or NaN, as means of squares are; ``depth`` bounds
    the operations that are looked through."""
    op = x.owner
    if isinstance(op, WeightOp):
        return not np.signbit(at.network.weights.get(op.symbol.data)).any()
    if not isinstance(op, Operation) or not depth:
        return False
    name, inputs = op.operation, op.inputs
    if name in ("exp", "abs", "sigmoid", "softmax") or (name == "mul" and inputs[0] is inputs[1]):
        return True
    through = ("add", "mul", "div", "reduce_sum", "reduce_mean", "reshape", "transpose", "cast")
    return name in through and all(_is_no_less_than_zero(at, v, depth - 1) for v in inputs)


def mod(at: Lowering) -> Value:
    """The remainder: with the sign of the divisor, or with fmod of the dividend."""
    return at.emit("mod", at.tensor(0), at.tensor(1), truncated=bool(at.integer("fmod")))


def gelu(at: Lowering) -> Value:
    """x times the normal distribution at x, or its approximation by tanh."""
    x = at.tensor(0)
    if at.text("approximate", "none") == "tanh":
        return gelu_by_tanh(at, x)
    part = at.emit("erf", at.apply("mul", x, 0.7071067811865476))
    return at.emit("mul", at.apply("mul", x, 0.5), at.apply("add", part, 1.0))


def gelu_by_tanh(at: Lowering, x: SSAValue) -> SSAValue:
    """The approximation of GELU by tanh."""
    cube = at.emit("mul", at.emit("mul", x, x), x)
    inner = at.emit("add", x, at.apply("mul", cube, 0.044715))
    part = at.emit("tanh", at.apply("mul", inner, 0.7978845608028654))
    return at.emit("mul", at.apply("mul", x, 0.5), at.apply("add", part, 1.0))


def swish(at: Lowering) -> Value:
    """x * sigmoid(alpha * x)."""
    x, alpha = at.tensor(0), at.number("alpha", 1.0)
    if alpha == 1:
        return at.emit("silu", x)
    return at.emit("mul", x, at.emit("sigmoid", at.apply("mul", x, alpha)))


def mish(at: Lowering) -> Value:
    """Emit x * tanh(softplus(x)), element by element."""
    x = at.tensor(0)
    return at.emit("mul", x, at.emit("tanh", at.emit("softplus", x)))


def selu(at: Lowering) -> Value:
    """Emit gamma * elu(x), element by element."""
    alpha, gamma = (
        at.number("alpha", 1.67326319217681884765625),
        at.number("gamma", 1.05070102214813232421875),
    )
    return at.apply("mul", at.emit("elu", at.tensor(0), alpha=alpha), gamma)


def celu(at: Lowering) -> Value:
    """x, or alpha * (exp(x / alpha) - 1) below zero."""
    x, alpha = at.tensor(0), at.number("alpha", 1.0)
    if alpha == 0:
        raise at.refuse("alpha is 0")
    below = at.emit("elu", at.apply("div", x, alpha), alpha=alpha)
    return at.emit("select", at.apply("less", x, 0.0), below, x)


def softsign(at: Lowering) -> Value:
    """x / (1 + |x|)."""
    x = at.tensor(0)
    return at.emit("div", x, at.apply("add", at.emit("abs", x), 1.0))


def thresholded_relu(at: Lowering) -> Value:
    """x where it is above alpha, else 0."""
    x, alpha = at.tensor(0), at.number("alpha", 1.0)
    zero = at.weight(np.zeros((), at.dtype(0)), f"{at.node.name}.zero")
    return at.emit("select", at.apply("less", alpha, x), x, zero)


def shrink(at: Lowering) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    x, edge, bias = at.tensor(0), at.number("lambd", 0.5), at.number("bias")
    zero = at.weight(np.zeros((), at.dtype(0)), f"{at.node.name}.zero")
    low = at.emit("select", at.apply("less", x, -edge), at.apply("add", x, bias), zero)
    return at.emit("select", at.apply("less", edge, x), at.apply("sub", x, bias), low)


def identity(at: Lowering) -> Value:
    """Return the operand itself; nothing is emitted."""
    return at.operand(0)


def dropout(at: Lowering) -> Sequence[Value]:
    """The operand itself, and a mask of all: nothing is dropped at inference.

    In training mode a model that says the seed drops the same elements in every run: those for
    which ONNX's reference draws less than the ratio from NumPy's generator with that seed.
    """
    training = at.operands[2] if len(at.operands) > 2 else None
    value, mask = at.operand(0), np.ones(at.shape(0), np.bool_)
    if training is not None and (not isinstance(training, Constant) or training.array.any()):
        ratio = at.constant(1) if at.has(1) else np.float32(0.5)
        if ratio is None or not isinstance(training, Constant) or ratio.size != 1:
            raise at.refuse("it is in training mode", help="export the model for inference")
        if (part := float(ratio.reshape(-1)[0])) != 0:
            if "seed" not in at.attributes or not 0 < part < 1:
                reason = "it is in training mode, and its seed or ratio is no such number"
                raise at.refuse(reason, help="export the model for inference")
            random = np.random.RandomState(at.integer("seed") % 2**32)
            mask = random.uniform(0, 1, at.shape(0)) >= part
            factors = mask / np.float32(1 - part)
            value = at.emit("mul", at.tensor(0), at.made(factors, at.tensor(0), "factors"))
    return [value, Constant(mask, f"{at.node.name}.mask")][: len(at.node.outputs)]


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
    """Emit the mask of elements that are infinite, with both signs or with one."""
    x = at.tensor(0)
    if at.integer("detect_positive", 1) and at.integer("detect_negative", 1):
        return at.apply("equal", at.emit("abs", x), float("inf"))
    if at.integer("detect_positive", 1):
        return at.apply("equal", x, float("inf"))
    if at.integer("detect_negative", 1):
        return at.apply("equal", x, float("-inf"))
    return at.apply("less", x, float("-inf"))


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
    value, saturate = at.operand(0), bool(at.integer("saturate", 1))
    if dtype not in DTYPES.values():
        raise at.refuse(f"casts to {dtype} are not computed", code="onnx-dtype")
    if dtype_of_value(value) == dtype:
        return value
    if dtype.name == "float8_e8m0fnu":
        return _power_of_two(at, at.cast(at.stored(value), np.float32), saturate)
    if isinstance(value, Constant):
        values = {"to": dtype.name, **({"saturate": saturate} if dtype.name in FLOAT_CODES else {})}
        return Constant(pointwise.evaluate("cast", [value.array], attributes=values), value.name)
    return encoded(at, value, dtype, saturate=saturate)


def encoded(
    at: Lowering, value: SSAValue, dtype: np.dtype[np.generic], *, saturate: bool
) -> SSAValue:
    """Another element type; ``saturate`` as Cast has it, for floats of 8 bits."""
    if saturate and dtype.name in FLOAT_CODES:
        return at.emit("cast", value, to=dtype.name, saturate=True)
    return at.cast(value, dtype)


def _power_of_two(at: Lowering, x: SSAValue, saturate: bool) -> SSAValue:
    """float32 as the exponent alone, rounded as ``round_mode`` says; as ONNX's reference has it.

    What is infinite or no number is no number.
    """
    bits = at.emit("bit_cast", x, to="int32")
    exponent = at.apply("bit_and", at.apply("bit_shift", bits, 23), 255)
    fraction, mode = at.apply("bit_and", bits, 0x7FFFFF), at.text("round_mode", "up")
    if mode not in ("up", "down", "nearest"):
        raise at.refuse(f"the round_mode {mode!r}")
    rounded = exponent
    if mode != "down":
        # Of two as near the upper one, but for numbers below the least normal one.
        least = (
            at.apply(
                "select",
                at.apply("less", exponent, 1),
                *(at.made(number, exponent) for number in (0x400000, 0x3FFFFF)),
            )
            if mode == "nearest"
            else at.made(0, exponent)
        )
        rounded = at.emit("add", exponent, at.cast(at.emit("less", least, fraction), np.int32))
    most = at.made(254 if saturate else 255, exponent)
    special = at.apply("equal", exponent, 255)
    code = at.emit("select", special, exponent, at.emit("min", rounded, most))
    return at.emit("bit_cast", at.cast(code, np.uint8), to="float8_e8m0fnu")


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
