"""The lowering of later stages to steps of the epilogue, and the parameters of functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.codegen.program.elements import elements, fraction, is_wide
from tilewright.errors import refuse
from tilewright.ir import Attribute
from tilewright.ir.types import FixedType, element_dtype, element_name
from tilewright.machine import Primitive
from tilewright.numerics import fixed, pointwise, tables
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.operators import has
from tilewright.targets.generic.functions import FUNCTIONS, LETTERS, bits_of
from tilewright.targets.generic.operands import CODES
from tilewright.tile.dialect import StageOp


@dataclass(frozen=True)
class Tables:
    """The addresses of a kernel's function tables, which are looked up by content."""

    address_of: Callable[[bytes], int]


def element_columns(fields: Mapping[str, Any], name: str, element: Attribute) -> dict[str, int]:
    """The field that tells an operand's element type, where an instruction has one."""
    if f"{name}.element" in fields:
        return {f"{name}.element": CODES.index(element_name(element))}
    return {f"{name}.wide": int(is_wide(element))} if f"{name}.wide" in fields else {}


def parameters(stage: StageOp, prefix: str, tables_: Tables) -> dict[str, int]:
    """The fields ``x``, ``y``, ``table`` of a stage's function."""
    name = stage.operation.data
    function = FUNCTIONS[name]
    operands, result = elements(stage)
    values = stage.parameters
    if not isinstance(operands[0], FixedType) and function.integer_parameters:
        known = dict(values)
        if "minimum" in function.integer_parameters:
            limits = np.iinfo(element_dtype(result))
            known = {"minimum": limits.min, "maximum": limits.max} | known
        return {
            f"{prefix}.{letter}": bits_of(float(known[key]))
            if key.endswith(("factor", "scale"))
            else int(known[key])
            for letter, key in zip(LETTERS, function.integer_parameters, strict=False)
        }
    if name == "look_up":
        entries = np.array(values["table"], element_dtype(result))
        return {f"{prefix}.table": tables_.address_of(entries.tobytes())}
    if not isinstance(operands[0], FixedType):
        defaults = {"minimum": -np.inf, "maximum": np.inf}
        arguments = [values.get(key, defaults.get(key, 0.0)) for key in function.float_parameters]
        return {
            f"{prefix}.{letter}": bits_of(float(v))
            for letter, v in zip("xy", arguments, strict=False)
        }
    if function.table:
        entries = tables.table(
            name,
            fraction(operands[0]),
            fraction(result),
            tables.parameters_of(name, values),
        )
        return {f"{prefix}.table": tables_.address_of(entries.astype("<i2").tobytes())}
    dtype, point = element_dtype(operands[0]), fraction(operands[0])
    match name:
        case "clip":
            low, high = pointwise.clip_bounds(values, point, dtype)
            return {f"{prefix}.x": low, f"{prefix}.y": high}
        case "leaky_relu":
            slope = pointwise.bound(
                float(values["alpha"]), fixed.SLOPE_FRACTION, np.dtype(np.int16)
            )
            return {f"{prefix}.x": slope}
        case "requantise":
            return {f"{prefix}.x": point, f"{prefix}.y": fraction(result)}
        case "add" | "sub" | "prelu":
            return {f"{prefix}.x": point, f"{prefix}.y": fraction(operands[1])}
        case _:
            return {}


def is_rounding(stage: StageOp) -> bool:
    """Return True if a stage rounds float32 to fewer bits."""
    operands, result = elements(stage)
    kinds = [ELEMENTS[element_name(kind)] for kind in (operands[0], result)]
    return stage.operation.data == "cast" and [kind.kind for kind in kinds] == ["float"] * 2


def step_columns(
    part: Primitive, stages: Sequence[StageOp], tables_: Tables
) -> tuple[dict[str, int], tuple[StageOp, int] | None]:
    """The fields of the steps, and the stage whose second operand is the residual with its index.

    Refuses (``lower-epilogue``) chains that the primitive's groups do not cover in their order.
    """
    columns: dict[str, int] = {}
    residual: tuple[StageOp, int] | None = None
    group = 0
    for before, stage in pairwise(stages):
        name = stage.operation.data
        if stage is stages[-1] and is_rounding(stage):
            continue  # as every result is, on its way into its buffer
        indices = [i for i in range(group, len(part.epilogue)) if name in part.epilogue[i]]
        if not indices:
            chain = ", ".join(link.operation.data for link in stages)
            groups = ", ".join(f"[{', '.join(operations)}]" for operations in part.epilogue)
            raise refuse(
                "lower-epilogue",
                f"{part.name} applies {groups or 'nothing'} after its anchor, in this order; "
                f"the kernel is {chain}",
                help="on fixed point: residual, activation, requantise, then functions by table",
            )
        number = indices[0]
        group = number + 1
        columns[f"then{group}"] = part.epilogue[number].index(name) + 1
        if FUNCTIONS[name].binary:
            others = [i for i, value in enumerate(stage.inputs) if value is not before.result]
            if residual is not None or len(others) != 1:
                raise refuse("lower-epilogue", f"{part.name} takes one residual", name)
            if others[0] == 0 and not has(name, "commutative"):
                raise refuse("lower-epilogue", f"{name} must have the residual second", name)
            residual = (stage, others[0])
        step_fields = parameters(stage, f"then{group}", tables_)
        if residual is not None and residual[0] is stage and residual[1] == 0:
            x, y = (step_fields.get(f"then{group}.{letter}") for letter in "xy")
            if x is not None and y is not None and name not in ("add_linear", "mul_linear"):
                step_fields |= {f"then{group}.x": y, f"then{group}.y": x}
        columns |= step_fields
    return columns, residual
