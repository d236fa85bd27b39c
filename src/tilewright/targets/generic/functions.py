"""Functions of one element or two that instructions apply; their meanings are numerics' own.

Parameters travel in 32-bit fields ``x``, ``y``, ...: integers for fixed point and int8, the bits of
a float32 for floats and for factors. Functions by table read the memory ``tables``: 257 entries of
16 bits on fixed point, between which they interpolate; 256 bytes on int8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.numerics import fixed as fixed_point
from tilewright.numerics import pointwise, tables
from tilewright.numerics.element_types import Kind
from tilewright.numerics.operators import PARAMETERS
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.family import Unit
from tilewright.targets.generic.operands import CODES, address_bits

TABLES = "tables"
"""Name of the memory of function tables."""

TABLE_ENTRIES = 257
TABLE_BYTES = 2 * TABLE_ENTRIES


@dataclass(frozen=True)
class Function:
    """One function: its operands and what its parameters mean."""

    name: str
    binary: bool = False
    fixed_parameters: tuple[str, ...] = ()
    float_parameters: tuple[str, ...] = ()
    table: bool = False
    """True if fixed point interpolates it in a table."""
    on_fixed: bool = True
    integer_parameters: tuple[str, ...] = ()
    """Attributes of an affine map: factors and scales are floats, the others integers."""
    scaled: bool = False
    """True if its second operand is a factor, in float32."""

    def parameters(self, kind: Kind) -> tuple[str, ...]:
        """Return the meanings of the used fields of ``LETTERS`` on elements of a kind."""
        if kind == "integer":
            return self.integer_parameters
        return self.fixed_parameters if kind == "fixed" else self.float_parameters

    def is_real(self, parameter: str) -> bool:
        """Return True if a parameter's field holds the bits of a float32, on other elements than
        fixed point: of what is mapped to or from integers, factors and scales alone."""
        return not self.integer_parameters or parameter.endswith(("factor", "scale"))

    def reads_table(self, kind: Kind) -> bool:
        """Return True if the function is read off a table on elements of a kind."""
        return self.table and kind == ("integer" if self.name == "look_up" else "fixed")


LETTERS = "xyzuvwt"
"""Names of the fields of parameters."""


_POINTS = ("binary point of the first operand", "binary point of the second")

_LIMITS = ("zero", "minimum", "maximum")
_ZEROS = ("first_zero", "second_zero", *_LIMITS)
_ADD = ("first_factor", "second_factor", *_ZEROS)
_QUANTISE = ("scale", *_LIMITS)
_MULTIPLY = ("factor", *_ZEROS)

FUNCTIONS: Mapping[str, Function] = {
    function.name: function
    for function in (
        Function("add", True, _POINTS),
        Function("sub", True, _POINTS),
        Function("mul", True),
        Function("max", True),
        Function("min", True),
        Function("div", True, on_fixed=False),
        Function("pow", True, on_fixed=False),
        Function("prelu", True, ("unused", "binary point of the slope")),
        # The value itself: the strides of the operand exchange the axes.
        Function("transpose"),
        Function("convert_layout"),
        Function("relu"),
        Function("neg"),
        Function("abs"),
        Function("clip", False, ("least value", "greatest value"), ("minimum", "maximum")),
        Function("leaky_relu", False, ("slope with 14 fraction bits",), ("alpha",)),
        Function("requantise", False, ("binary point before", "binary point after")),
        Function(
            "requantise_linear", True, on_fixed=False, integer_parameters=_LIMITS, scaled=True
        ),
        Function(
            "quantise_linear",
            on_fixed=False,
            float_parameters=_QUANTISE,
            integer_parameters=_QUANTISE,
        ),
        Function(
            "dequantise_linear",
            True,
            on_fixed=False,
            float_parameters=("zero",),
            integer_parameters=("zero",),
            scaled=True,
        ),
        Function("add_linear", True, on_fixed=False, integer_parameters=_ADD),
        Function("mul_linear", True, on_fixed=False, integer_parameters=_MULTIPLY),
        Function("look_up", table=True, on_fixed=False),
        *(
            Function(name, float_parameters=tuple(PARAMETERS[name]), table=True)
            for name in tables.FUNCTIONS
        ),
    )
}
"""Every function by the name of its graph operation."""

MOVING = ("transpose", "convert_layout")
"""The functions that exchange axes, and leave elements as they are."""

STEPS = tuple(name for name in FUNCTIONS if name not in MOVING)
"""The functions that may follow an instruction's own operation: they leave elements in place."""


def wrap32(values: NDArray[Any]) -> NDArray[Any]:
    """Sums modulo 2**32; 16-bit values stay as they are."""
    return values if values.dtype.itemsize <= 4 else fixed_point.wrap32(values)


def float_of(bits: int) -> float:
    """The float32 of a 32-bit field."""
    return float(np.array([bits], np.int64).astype(np.int32).view(np.float32)[0])


def bits_of(value: float) -> int:
    """A float32 as a 32-bit signed field."""
    return int(np.array(value, np.float32).view(np.int32))


def evaluate(
    unit: Unit,
    function: Function,
    values: Mapping[str, int],
    prefix: str,
    operand: NDArray[Any],
    other: NDArray[Any] | None,
) -> NDArray[Any]:
    """A function of arrays, its parameters in ``prefix.x``, ``prefix.y``, ..., ``prefix.table``."""
    if function.name in MOVING:
        return operand
    arrays = [operand] if other is None else [operand, other]
    x, y = values.get(f"{prefix}.x", 0), values.get(f"{prefix}.y", 0)
    number = unit.machine.number
    if function.name == "look_up":
        if operand.dtype != number.dtype:
            raise refuse("simulate-width", f"look_up takes elements of {number.name}")
        entries = unit.memories.view(TABLES, values[f"{prefix}.table"], number.dtype, (256,), (1,))
        return entries[operand.astype(np.int32) - int(np.iinfo(number.dtype).min)]
    if not unit.fixed:
        attributes: dict[str, Any] = {"to": number.name}
        if "output.element" in values:
            attributes["to"] = CODES[values["output.element"]]
        for name, letter in zip(function.parameters(number.kind), LETTERS, strict=False):
            bits = values.get(f"{prefix}.{letter}", 0)
            attributes[name] = float_of(bits) if function.is_real(name) else bits
        return pointwise.evaluate(function.name, arrays, attributes=attributes)
    if function.table:
        if operand.dtype != np.int16:
            raise refuse("simulate-width", f"{function.name} takes 16-bit elements")
        address = values[f"{prefix}.table"]
        entries = unit.memories.view(TABLES, address, np.int16, (TABLE_ENTRIES,), (2,))
        return tables.interpolate(entries, operand)
    match function.name:
        case "clip":
            limits = np.iinfo(operand.dtype)
            low, high = (min(max(bound, limits.min), limits.max) for bound in (x, y))
            return np.minimum(
                np.maximum(operand, operand.dtype.type(low)), operand.dtype.type(high)
            )
        case "leaky_relu":
            slope = np.array(x, np.int64)
            return pointwise.FIXED["prelu"]([operand, slope], (0, fixed_point.SLOPE_FRACTION), {})
        case "requantise":
            return fixed_point.requantise(operand, x, y, unit.machine.number.dtype)
        case "prelu":
            return pointwise.FIXED["prelu"](arrays, (0, min(max(y, 1), 62)), {})
        case name:
            return pointwise.FIXED[name](arrays, (x, y), {})


def table_bits(machine: Machine) -> int:
    """Bits of an address in the memory of tables; refuses machines that have none."""
    known = [memory.name for memory in machine.memories]
    loaded = [move for move in machine.moves if move.target == TABLES]
    if TABLES not in known or not loaded or machine.memory(TABLES).bytes is None:
        raise refuse(
            "isa-tables",
            f"{machine.name} computes functions by table but has no memory {TABLES!r} with a move "
            "to it",
            help=f"add memory.{TABLES} (1024 bytes per table) and a move from {machine.main}",
        )
    return address_bits(machine, TABLES)


def table_touch(machine: Machine, address: Column, used: NDArray[np.bool_]) -> Touch:
    """Return the touch of function tables by instructions."""
    entries, item = (256, 1) if machine.number.kind == "integer" else (TABLE_ENTRIES, 2)
    size = np.where(used, entries, 0)
    step = np.full_like(address, item)
    return Touch(TABLES, False, address, (size,), (step,), step)
