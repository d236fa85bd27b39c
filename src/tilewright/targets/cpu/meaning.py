"""What map operations are in C, on one element (suffix s) and on a vector of them (suffix v)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from tilewright.errors import refuse
from tilewright.targets.cpu.source import literal

Form = Literal["s", "v"]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_FUNCTIONS = (
    *("relu", "sigmoid", "tanh", "hard_swish", "silu", "exp", "log", "sqrt", "neg", "abs"),
    *("erf", "gelu", "max", "min", "pow", "prelu", "softplus"),
)
COPIES = ("convert_layout", "copy", "identity", "transpose", "slice", "pad", "reshape")
"""Operations that give the element of their operand as it is."""


def _clip(attributes: Mapping[str, Any]) -> list[str]:
    return [
        literal(float(attributes.get("minimum", float("-inf")))),
        literal(float(attributes.get("maximum", float("inf")))),
    ]


_PARAMETERS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "clip": _clip,
    "leaky_relu": lambda a: [literal(float(a.get("alpha", 0.01)))],
    "elu": lambda a: [literal(float(a.get("alpha", 1.0)))],
    "hard_sigmoid": lambda a: [
        literal(float(a.get("alpha", 0.2))),
        literal(float(a.get("beta", 0.5))),
    ],
}


def supported(operation: str) -> bool:
    """Whether a map operation has a meaning in C here."""
    return (
        operation in _INFIX
        or operation in _FUNCTIONS
        or operation in _PARAMETERS
        or operation in COPIES
        or operation == "batch_norm"
    )


def expression(
    operation: str, arguments: Sequence[str], attributes: Mapping[str, Any], form: Form
) -> str:
    """The C expression of a float map operation; refuses an operation that has none."""
    if operation in _INFIX:
        left, right = arguments
        return f"{left} {_INFIX[operation]} {right}"
    if operation in COPIES:
        return arguments[0]
    if operation == "batch_norm":
        x, scale, shift, mean, variance = arguments
        epsilon = literal(float(attributes.get("epsilon", 1e-5)))
        return f"({x} - {mean}) / sqrt_{form}({variance} + {epsilon}) * {scale} + {shift}"
    if operation in _FUNCTIONS or operation in _PARAMETERS:
        parameters = _PARAMETERS.get(operation, lambda _: [])(attributes)
        return f"{operation}_{form}({', '.join([*arguments, *parameters])})"
    raise refuse("cpu-operation", f"the cpu target has no C for operation {operation!r}")
