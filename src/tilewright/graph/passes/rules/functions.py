"""Functions that exporters spell out, put together again for machines that compute them at once."""

from __future__ import annotations

from math import isclose, sqrt

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import constant, make, only_user, replace
from tilewright.ir import SSAValue
from tilewright.ir.passes import CompilerContext


def recognise_gelu(op: Operation, ctx: CompilerContext) -> bool:
    """x * (1 + erf(x / sqrt(2))) * 0.5, its factors in any order: gelu(x).

    The operation is the last product; Hendrycks and Gimpel, "Gaussian error linear units", 2016.
    """
    if op.operation != "mul" or not ctx.machine.primitives_for("gelu"):
        return False
    factors = _factors(op)
    numbers = [n for f in factors if (n := _number(f, ctx)) is not None]
    values = [f for f in factors if _number(f, ctx) is None]
    if len(numbers) != 1 or len(values) != 2 or not isclose(numbers[0], 0.5, rel_tol=1e-6):
        return False
    for x, more in (values, values[::-1]):
        if _is_one_plus_erf(more, x, ctx):
            replace(op, make("gelu", [x], before=op, like=op).result)
            return True
    return False


def recognise_silu(op: Operation, ctx: CompilerContext) -> bool:
    """x * sigmoid(x), in either order: silu(x).

    Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units", 2017; PyTorch exports it as the two.
    """
    if op.operation != "mul" or not ctx.machine.primitives_for("silu"):
        return False
    first, second = op.inputs
    for x, part in ((first, second), (second, first)):
        inner = part.owner
        if not isinstance(inner, Operation) or inner.operation != "sigmoid":
            continue
        if inner.inputs[0] is x and only_user(part) is op:
            replace(op, make("silu", [x], before=op, like=op).result)
            return True
    return False


def _factors(op: Operation) -> list[SSAValue]:
    """List the factors of a product, through inner products that nothing else reads."""
    factors: list[SSAValue] = []
    for value in op.inputs:
        inner = value.owner
        nested = isinstance(inner, Operation) and inner.operation == "mul" and len(factors) < 2
        if nested and only_user(value) is op and isinstance(inner, Operation):
            factors.extend(inner.inputs)
        else:
            factors.append(value)
    return factors


def _number(value: SSAValue, ctx: CompilerContext) -> float | None:
    """A constant that is one number everywhere."""
    array = constant(value, ctx)
    if array is None or array.size != 1 or not np.issubdtype(array.dtype, np.floating):
        return None
    return float(array.reshape(-1)[0])


def _is_one_plus_erf(value: SSAValue, x: SSAValue, ctx: CompilerContext) -> bool:
    """Return True if a value is 1 + erf(x / sqrt(2))."""
    more = value.owner
    if not isinstance(more, Operation) or more.operation != "add":
        return False
    for number, part in (more.inputs, tuple(more.inputs)[::-1]):
        erf = part.owner
        if _number(number, ctx) != 1.0 or not isinstance(erf, Operation):
            continue
        scaled = erf.inputs[0].owner if erf.operation == "erf" else None
        if not isinstance(scaled, Operation) or scaled.operation not in ("div", "mul"):
            continue
        operands = tuple(scaled.inputs)
        if scaled.operation == "mul" and operands[1] is x:
            operands = operands[::-1]
        factor = _number(operands[1], ctx)
        wanted = sqrt(2) if scaled.operation == "div" else sqrt(0.5)
        if operands[0] is x and factor is not None and isclose(factor, wanted, rel_tol=1e-5):
            return True
    return False
