"""The C code of elementwise map operations, on one element and on a vector of them.

Functions have a suffix for the type they compute on: v for a vector, s for float, d for double,
i and u for integers of 64 bits with and without sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tilewright.codegen.c.source import C_TYPES, byte_string, literal
from tilewright.errors import refuse
from tilewright.numerics.codes import FORMATS
from tilewright.numerics.operators import PARAMETERS, has, operators

Form = Literal["s", "d", "v"]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
SHORT_FLOATS = {"float16": "half", "bfloat16": "brain"}
"""Element types that are kept as bits, and what scalars.h calls them."""

_RELATIONS = {"equal": "==", "less": "<", "less_equal": "<="}
_BITS = {"bit_and": "&", "bit_or": "|", "bit_xor": "^"}
_INTEGER_FUNCTIONS = ("max", "min", "relu", "sign", "prelu", "div", "mod", "fmod", "pow")
COPIES = ("convert_layout", "copy", "identity", "pad", *operators("view"))
"""Operations that give the element of their operand as it is."""


def expression(
    operation: str, arguments: Sequence[str], attributes: Mapping[str, Any], form: Form
) -> str:
    """The C expression of a float map operation; refuses an operation that has none."""
    if operation == "mod" and attributes.get("truncated"):
        operation = "fmod"
    if operation in _INFIX:
        left, right = arguments
        return f"{left} {_INFIX[operation]} {right}"
    if operation in COPIES:
        return arguments[0]
    if operation == "batch_norm":
        x, scale, shift, mean, variance = arguments
        epsilon = literal(float(attributes.get("epsilon", 1e-5)))
        return f"({x} - {mean}) / sqrt_{form}({variance} + {epsilon}) * {scale} + {shift}"
    if has(operation, "function", "arithmetic") or operation in ("mod", "fmod"):
        parameters = [
            literal(float(attributes.get(name, default)))
            for name, default in PARAMETERS.get(operation, {}).items()
        ]
        return f"{operation}_{form}({', '.join([*arguments, *parameters])})"
    raise refuse("cpu-operation", f"the cpu target has no C for operation {operation!r}")


AFFINE = operators("affine")
"""Operations between floats and quantised integers, and on these alone; see quantised.h."""


def affine_expression(
    operation: str,
    arguments: Sequence[str],
    attributes: Mapping[str, Any],
    elements: Sequence[str],
    result: str,
    form: Literal["s", "v"],
) -> str:
    """The C expression of such an operation; integers are lanes of 32 bits, or ``int32_t``."""
    if operation == "look_up":
        # The numbers' bytes, as a string; C adds one of zero.
        table = byte_string(int(entry) & 255 for entry in attributes["table"])
        least = -128 if elements[0] == "int8" else 0
        return f"look_up_{result}_{form}({arguments[0]}, {table}, {least})"
    if operation in ("quantise_linear", "dequantise_linear") and "zero" in attributes:
        # What loops read as operands is stated as numbers.
        wide = {"s": ("", ""), "v": ("splat", "splat_int")}[form]
        stated = [f"{wide[1]}({int(attributes['zero'])})"]
        if "scale" in attributes:
            stated.insert(0, f"{wide[0]}({literal(float(attributes['scale']))})")
        arguments = [*arguments, *stated]
    if operation == "dequantise_linear":
        return f"dequantise_linear_{form}({', '.join(arguments)})"
    least, most = (attributes.get(name) for name in ("minimum", "maximum"))
    limits = np.iinfo(result)
    ends = [str(limits.min if least is None else least), str(limits.max if most is None else most)]
    if operation == "quantise_linear":
        return f"quantise_linear_{form}({', '.join([*arguments, *ends])})"
    ends.insert(0, str(attributes.get("zero", 0)))
    zeros = [str(attributes.get(f"{name}_zero", 0)) for name in ("first", "second")]
    if operation == "requantise_linear":
        listed = [*arguments, *ends]
    elif operation == "mul_linear":
        factor = literal(float(attributes.get("factor", 1.0)))
        listed = [arguments[0], zeros[0], arguments[1], zeros[1], factor, *ends]
    else:
        listed = []
        for name, argument, zero in zip(("first", "second"), arguments, zeros, strict=True):
            listed += [argument, literal(float(attributes.get(f"{name}_factor", 1.0))), zero]
        listed += ends
    return f"{operation}_{form}({', '.join(listed)})"


def element_expression(
    operation: str,
    arguments: Sequence[str],
    attributes: Mapping[str, Any],
    elements: Sequence[str],
    result: str,
) -> str:
    """The C expression of a map operation on one element of each operand.

    ``elements`` are the element types of the operands, ``result`` that of the result.
    """
    element = elements[-1]
    if operation in AFFINE:
        return affine_expression(operation, arguments, attributes, elements, result, "s")
    if operation == "cast":
        return _cast(arguments[0], element, result, bool(attributes.get("saturate")))
    if operation == "bit_cast":
        both = f"union {{ {C_TYPES[element]} a; {C_TYPES[result]} b; }}"
        return f"(({both}){{.a = {arguments[0]}}}).b"
    if operation == "select":
        condition, yes, no = arguments
        return f"{condition} ? {yes} : {no}"
    if operation in _RELATIONS and element not in SHORT_FLOATS:
        left, right = arguments
        return f"{left} {_RELATIONS[operation]} {right}"
    if operation in COPIES or element in ("float32", "fixed16", "fixed32"):
        return expression(operation, arguments, attributes, "s")
    if element == "float64":
        return expression(operation, arguments, attributes, "d")
    if element == "bool" or "int" in element:
        return _integer(operation, arguments, attributes, element)
    raise refuse("cpu-operation", f"the cpu target does not compute {operation} on {element}")


def _cast(value: str, element: str, result: str, saturate: bool) -> str:
    """A value as an element of another type."""
    if element in FORMATS:
        value, element = _decoded(value, element)
    if element in SHORT_FLOATS:
        value = f"float_of_{SHORT_FLOATS[element]}({value})"
    if result in FORMATS:
        return _encoded(value, element, result, saturate)
    if result in SHORT_FLOATS:
        return f"{SHORT_FLOATS[result]}_of_float((float)({value}))"
    if result == "bool":
        return f"({value}) != 0"
    if "int" in result and "int" not in element and element != "bool":
        # By way of 32 or 64 bits: what does not fit in fewer wraps around, as in the reference.
        wide = {"int64": "int64", "uint32": "int64", "uint64": "uint64"}.get(result, "int32")
        kind = "double" if element == "float64" else "float"
        return f"({C_TYPES[result]}){wide}_of_{kind}({value})"
    return f"({C_TYPES[result]})({value})"


def _decoded(code: str, element: str) -> tuple[str, str]:
    """The number of a code, and its element type."""
    form = FORMATS[element]
    if form.fraction is None:
        return f"integer_of_code({code}, {form.bits}, {int(form.signed)})", "int32"
    if not form.signed:
        return f"power_of_code({code})", "float32"
    parameters = (form.sign, form.fraction, form.bias, form.most, form.nan, int(form.minus_zero))
    return f"float_of_code({code}, {', '.join(map(str, parameters))})", "float32"


def _encoded(value: str, element: str, result: str, saturate: bool) -> str:
    """The code of a number."""
    form = FORMATS[result]
    if form.fraction is None:
        kind = "double" if element == "float64" else "float"
        whole = value if "int" in element or element == "bool" else f"int32_of_{kind}({value})"
        return f"(uint8_t)({whole} & {2**form.bits - 1})"
    beyond = form.most if saturate else form.beyond
    parameters = (form.sign, form.fraction, form.bias, form.most, form.nan, int(form.minus_zero))
    return f"code_of_float((float)({value}), {', '.join(map(str, parameters))}, {beyond})"


def _integer(
    operation: str, arguments: Sequence[str], attributes: Mapping[str, Any], element: str
) -> str:
    """A map of integers or booleans; sums and products wrap around."""
    kind, unsigned = C_TYPES[element], element == "bool" or element.startswith("u")
    if operation == "mod" and attributes.get("truncated"):
        operation = "fmod"
    if operation in ("add", "sub", "mul"):
        left, right = arguments
        return f"({kind})((uint64_t){left} {_INFIX[operation]} (uint64_t){right})"
    if operation in _BITS:
        return f" {_BITS[operation]} ".join(arguments)
    if operation == "bit_not":
        return f"!{arguments[0]}" if element == "bool" else f"({kind})~{arguments[0]}"
    if operation == "bit_shift":
        value, count = arguments
        # As the reference has it, a shift by more than there are bits leaves the sign alone.
        inside = f"(uint64_t){count} < {8 * _BYTES[element]}"
        if attributes.get("left"):
            return f"{inside} ? ({kind})((uint64_t){value} << {count}) : ({kind})0"
        beyond = f"({kind})0" if unsigned else f"({kind})({value} < 0 ? -1 : 0)"
        return f"{inside} ? ({kind})({value} >> {count}) : {beyond}"
    if operation == "neg":
        return f"({kind})(0 - (uint64_t){arguments[0]})"
    if operation == "abs":
        value = arguments[0]
        return value if unsigned else f"{value} < 0 ? ({kind})(0 - (uint64_t){value}) : {value}"
    if operation == "clip":
        value = arguments[0]
        for name, function in (("minimum", "max"), ("maximum", "min")):
            if name in attributes:
                bound = int(attributes[name])
                value = f"{function}_{'u' if unsigned else 'i'}({value}, {bound})"
        return f"({kind}){value}"
    if operation in _INTEGER_FUNCTIONS:
        return f"({kind}){operation}_{'u' if unsigned else 'i'}({', '.join(arguments)})"
    raise refuse("cpu-operation", f"the cpu target does not compute {operation} on {element}")


_BYTES = {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}
