"""The steps that follow an accumulation as results are written: ``then1``, ``then2``, ...

Step i applies one function of the primitive's i-th epilogue group, or none. One of the steps may
take a second operand, the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column, Columns, Field, selector
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import functions
from tilewright.targets.generic.family import Unit
from tilewright.targets.generic.functions import FUNCTIONS, STEPS, TABLES
from tilewright.targets.generic.operands import (
    Values,
    elements_of,
    memory_of,
    operand_fields,
    touch,
)


def parameter_fields(machine: Machine, name: str, operations: Sequence[str]) -> tuple[Field, ...]:
    """``x``, ``y``, ... and the table of a function that ``name`` selects."""
    choices = [FUNCTIONS[operation] for operation in operations]
    kind = machine.number.kind
    result: list[Field] = []
    for index, letter in enumerate(functions.LETTERS):
        texts = [
            f"{f.name}: {f.parameters(kind)[index]}"
            for f in choices
            if len(f.parameters(kind)) > index
        ]
        if texts:
            result.append(Field(f"{name}.{letter}", 32, "; ".join(texts), signed=True))
    if any(f.reads_table(kind) for f in choices):
        bits = functions.table_bits(machine)
        result.append(Field(f"{name}.table", bits, f"address of the function's table in {TABLES}"))
    return tuple(result)


def fields(machine: Machine, part: Primitive, axes: Sequence[str]) -> tuple[Field, ...]:
    """One selector with its parameters per group, and the residual if a step may take one."""
    if part.epilogue_any:
        raise refuse(
            "isa-epilogue",
            f"{machine.name}: {part.name} takes any epilogue; instructions need its groups",
        )
    result: list[Field] = []
    binary = False
    for index, group in enumerate(part.epilogue, 1):
        unknown = [operation for operation in group if operation not in STEPS]
        if unknown:
            raise refuse(
                "isa-function",
                f"{machine.name}: {part.name} lists {', '.join(unknown)} as epilogue",
                help=f"functions are {', '.join(STEPS)}",
            )
        result.append(selector(f"then{index}", ("none", *group), f"step {index}"))
        result += parameter_fields(machine, f"then{index}", group)
        binary |= any(FUNCTIONS[operation].binary for operation in group)
    if binary and "residual" in part.operands:
        memory = memory_of(part, "residual")
        elements = elements_of(machine, part, "residual")
        result += operand_fields(machine, "residual", memory, axes, wide=True, elements=elements)
    return tuple(result)


def apply(
    unit: Unit, part: Primitive, values: Values, total: NDArray[Any], axes: Sequence[str]
) -> NDArray[Any]:
    """The result of the steps on complete sums; ``total`` has one axis for each of ``axes``."""
    if unit.exact:
        total = functions.wrap32(total)
    for index, group in enumerate(part.epilogue, 1):
        chosen = values[f"then{index}"]
        if not chosen:
            continue
        function = FUNCTIONS[group[chosen - 1]]
        other: NDArray[Any] | None = None
        if function.binary:
            other = residual(unit, part, values, total.shape, axes)
            other = other.view(np.float32) if function.scaled else other
        total = functions.evaluate(unit, function, values, f"then{index}", total, other)
    return total


def residual(
    unit: Unit, part: Primitive, values: Values, shape: Sequence[int], axes: Sequence[str]
) -> NDArray[Any]:
    """The second operand of a step, in the shape of the result."""
    if "residual.address" not in values:
        raise refuse("isa-residual", f"{part.name} has no residual")
    return unit.operand(part, values, "residual", shape, axes)


def touches(
    machine: Machine, part: Primitive, columns: Columns, axes: Sequence[tuple[str, Column]]
) -> list[Touch]:
    """The residual, where a step of a complete sum takes it, and the tables."""
    zero, kind = np.zeros_like(columns["output.address"]), machine.number.kind
    last = columns.get("last", zero + 1) > 0
    accesses: list[Touch] = []
    takes = zero > 0
    for index, group in enumerate(part.epilogue, 1):
        chosen = columns[f"then{index}"]
        binary = [i for i, name in enumerate(group, 1) if FUNCTIONS[name].binary]
        takes |= np.isin(chosen, binary) & last
        if f"then{index}.table" in columns:
            with_table = [i for i, name in enumerate(group, 1) if FUNCTIONS[name].reads_table(kind)]
            used = np.isin(chosen, with_table) & last
            accesses.append(functions.table_touch(machine, columns[f"then{index}.table"], used))
    if "residual.address" in columns:
        # Where no step takes the residual, an axis of size 0 says so.
        reads = [(axes[0][0], np.where(takes, axes[0][1], 0)), *axes[1:]]
        accesses.append(touch(machine, columns, "residual", memory_of(part, "residual"), reads))
    return accesses
