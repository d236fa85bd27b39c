"""A compute as this family's instructions take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.codegen.program.operands import Computed
from tilewright.ir.types import Array
from tilewright.machine import Machine, Primitive
from tilewright.targets.generic.isa import Instruction
from tilewright.targets.generic.lowering.steps import Tables
from tilewright.tile.dialect import TensorOp


@dataclass(frozen=True)
class Context(Computed):
    """A compute, and what it takes to lower it."""

    machine: Machine
    part: Primitive
    instruction: Instruction
    tables: Tables
    content: Callable[[TensorOp], Array]
    """What a weight holds; raises TilewrightError where that is not known."""
