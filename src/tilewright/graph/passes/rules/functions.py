"""Functions that exporters spell out, put together again for machines that compute them at once."""

from __future__ import annotations

from math import isclose, sqrt

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, only_user, producer
from tilewright.ir import SSAValue


def recognise_gelu(op: Operation, at: Rewriter) -> bool:
    """x * (1 + erf(x / sqrt(2))) * 0.5, its factors in any order: gelu(x).

    The operation is the last product; Hendrycks and Gimpel, "Gaussian error linear units", 2016.
    """
    factors = _factors(op)
    numbers = [n for f in factors if (n := _number(f, at)) is not None]
    values = [f for f in factors if _number(f, at) is None]
    if len(numbers) != 1 or len(values) != 2 or not isclose(numbers[0], 0.5, rel_tol=1e-6):
        return False
    for x, more in (values, values[::-1]):
        if _is_one_plus_erf(more, x, at):
            return at.replace(at.make("gelu", x))
    return False


def recognise_silu(op: Operation, at: Rewriter) -> bool:
    """x * sigmoid(x), in either order: silu(x).

    Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units", 2017; PyTorch exports it as the two.
    """
    first, second = op.inputs
    for x, part in ((first, second), (second, first)):
        inner = producer(part, "sigmoid")
        if inner is not None and inner.inputs[0] is x and only_user(part) is op:
            return at.replace(at.make("silu", x))
    return False


def root_of_power(op: Operation, at: Rewriter) -> bool:
    """x ** 0.5: sqrt(x), where the machine's numbers know neither infinities nor -0."""
    if at.machine.number.kind == "float" or _number(op.inputs[1], at) != 0.5:
        return False
    return at.replace(at.make("sqrt", op.inputs[0]))


def _factors(op: Operation) -> list[SSAValue]:
    """List the factors of a product, through inner products that nothing else reads."""
    factors: list[SSAValue] = []
    for value in op.inputs:
        inner = producer(value, "mul") if len(factors) < 2 else None
        if inner is not None and only_user(value) is op:
            factors.extend(inner.inputs)
        else:
            factors.append(value)
    return factors


def _number(value: SSAValue, at: Rewriter) -> float | None:
    """A constant that is one number everywhere."""
    array = at.constant(value)
    if array is None or array.size != 1 or not np.issubdtype(array.dtype, np.floating):
        return None
    return float(array.reshape(-1)[0])


def _is_one_plus_erf(value: SSAValue, x: SSAValue, at: Rewriter) -> bool:
    """Return True if a value is 1 + erf(x / sqrt(2))."""
    more = producer(value, "add")
    if more is None:
        return False
    for number, part in (more.inputs, tuple(more.inputs)[::-1]):
        erf = producer(part, "erf")
        scaled = producer(erf.inputs[0], "div", "mul") if erf is not None else None
        if _number(number, at) != 1.0 or scaled is None:
            continue
        operands = tuple(scaled.inputs)
        if scaled.operation == "mul" and operands[1] is x:
            operands = operands[::-1]
        factor = _number(operands[1], at)
        wanted = sqrt(2) if scaled.operation == "div" else sqrt(0.5)
        if operands[0] is x and factor is not None and isclose(factor, wanted, rel_tol=1e-5):
            return True
    return False
