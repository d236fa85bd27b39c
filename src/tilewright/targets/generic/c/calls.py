"""The commands of a kernel as calls of the machine's C functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.codegen.c.loops import Call, KernelWriter, Value
from tilewright.codegen.c.source import literal
from tilewright.codegen.c.values import Tables
from tilewright.machine.checks import ROLES
from tilewright.targets.generic.c.records import (
    Member,
    c_of,
    constants,
    function_of,
    kind_of,
    members,
)
from tilewright.targets.generic.functions import float_of
from tilewright.targets.generic.isa import Instruction
from tilewright.targets.generic.lower import KernelLowering, Lowering
from tilewright.tile.dialect import ProgramOp

MEMORY = "memory"
"""The parameter of a kernel's function: where weights, activations and tables lie."""


def kernel_body(whole: Lowering, program: ProgramOp, prefix: str) -> list[str]:
    """The lines of a function that runs a program; ``prefix`` begins the names of its tables."""
    kernel = KernelLowering(whole, program)
    loads, lowered = kernel.fields()
    calls = {op: call(whole, *lowered[op]) for op in kernel.all}
    first = [call(whole, part.instruction, part.columns) for part in loads]
    named = c_of(whole.machine)
    return KernelWriter(kernel.order, calls, first, named, Tables(prefix)).write()


def call(whole: Lowering, instruction: Instruction, columns: Mapping[str, Any]) -> Call:
    """A command's call; members whose value is 0 in all executions are left to C."""
    values: list[Value] = []
    for member in members(instruction, kind_of(whole.instructions, instruction)):
        field = member.field
        column = _column(member, columns)
        base, literal_ = "", ""
        if member.real:
            literal_ = literal(float_of(int(np.ravel(column)[0])))
        elif _in_main(whole, instruction, field.name):
            base, column = _based(whole, column)
            if not np.any(np.asarray(columns.get("extra.bytes", 0))) and "extra" in field.name:
                continue
        values.append(
            Value(
                member.name,
                column,
                base,
                constants(instruction, field) if field.choices else (),
                slots=field.name.endswith(".address") or field.name.startswith("extra."),
                group=_group(field.name),
                text="" if literal_ == "0.0f" else literal_,
            )
        )
    engine = whole.machine.engines[instruction.engine].name
    return Call(function_of(instruction), engine, values)


def _column(member: Member, columns: Mapping[str, Any]) -> Any:
    """A member's value in every execution; 0 where another function than its own is selected."""
    column = columns.get(member.field.name, member.field.initial)
    if not member.selector:
        return column
    chosen = np.asarray(columns.get(member.selector, 0)) == member.choice
    return np.where(chosen, column, 0)


_APART = ("then", "source", "target", "extra")
_OPERANDS = (*ROLES, "other")


def _group(name: str) -> str:
    """The group of parameters that stand on one line: an operand's, an end's, or the steps'."""
    head = name.partition(".")[0]
    return next(
        (prefix for prefix in (*_APART, *_OPERANDS) if head.rstrip("0123456789") == prefix), ""
    )


def _in_main(whole: Lowering, instruction: Instruction, name: str) -> bool:
    """Return True if a field is an address in main memory."""
    move = instruction.move
    if move is None:
        return False
    ends = {"source": move.source, "target": move.target}
    for end, memory in ends.items():
        if name in (f"{end}.address", f"extra.{end}"):
            return memory == whole.machine.main
    return False


def _based(whole: Lowering, column: Any) -> tuple[str, Any]:
    """The part of main memory in which addresses lie, and the addresses from its start.

    Parts lie one after another; of those that begin at one place all but the last are empty.
    """
    least = int(np.asarray(column).min()) if np.asarray(column).size else 0
    name = [part for part, begin in whole.bases.items() if begin <= least][-1]
    return f"{MEMORY}->{name}", np.asarray(column) - whole.bases[name]
