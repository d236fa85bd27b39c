"""The base of families of instructions: their fields, meaning, memory touches and dims."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column, Columns, Field
from tilewright.machine import Machine, Move, Primitive
from tilewright.numerics.element_types import Kind, widened
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.memories import Memories
from tilewright.targets.generic.operands import Values, element_dtype, memory_of

Part = Move | Primitive
"""The part of a machine that an instruction stands for."""


@dataclass(frozen=True)
class Unit:
    """The machine and its memories, on which instructions execute."""

    machine: Machine
    memories: Memories

    @property
    def fixed(self) -> bool:
        """True if the machine's elements are fixed point."""
        return self.machine.number.kind == "fixed"

    @property
    def exact(self) -> bool:
        """True if elements are integers, so that their sums are exact modulo 2**32."""
        return self.machine.number.is_integer

    @property
    def working(self) -> type[np.floating[Any]]:
        """The type in which products are summed: integers stay exact in float64, below 2**53."""
        return np.float64 if self.exact else np.float32

    def operand(
        self,
        part: Primitive,
        values: Values,
        name: str,
        shape: Sequence[int],
        axes: Sequence[str],
        role: str = "",
    ) -> NDArray[Any]:
        """An operand as it is computed on: floats of 16 bits become float32.

        ``role`` is that of the machine's storage, where it is not called as the operand is.
        """
        view = self.memories.view(
            memory_of(part, role or name),
            values[f"{name}.address"],
            element_dtype(self.machine, values, name),
            shape,
            [values[f"{name}.{axis}"] for axis in axes],
        )
        return widened([view])[0]

    def sums(
        self, part: Primitive, values: Values, name: str, shape: Sequence[int], axes: Sequence[str]
    ) -> NDArray[Any]:
        """Accumulators, or a bias, which is as wide as they are."""
        return self.memories.view(
            memory_of(part, name),
            values[f"{name}.address"],
            self.machine.sum.dtype,
            shape,
            [values[f"{name}.{axis}"] for axis in axes],
        )


class Family(ABC):
    """One kind of instruction: fields, meaning, reach and dims, side by side."""

    name: str
    summary: str
    """The family's purpose, in one sentence."""
    text: str
    """The meaning, for the manual (markdown)."""
    operations: tuple[str, ...] = ()
    """Anchor operations of the graph that instructions of this kind compute."""
    kinds: tuple[Kind, ...] = ("float", "fixed", "integer")
    """Kinds of elements on which they compute."""

    @abstractmethod
    def fields(self, machine: Machine, part: Any) -> tuple[Field, ...]:
        """The fields after opcode and waits, for one move or primitive of a machine."""

    @abstractmethod
    def execute(self, unit: Unit, part: Any, values: Values) -> None:
        """Do what one instruction does to the memories; refuses what reaches outside them."""

    @abstractmethod
    def touches(self, machine: Machine, part: Any, columns: Columns) -> list[Touch]:
        """Return the touches of memories by a column of instructions."""

    def charged(self, machine: Machine, part: Move, columns: Columns) -> list[Touch]:
        """Return the boxes of transfers whose bytes take their move's bandwidth."""
        return []

    def dims(self, columns: Columns) -> Mapping[str, Column]:
        """The dims that the primitive's cycle expression sees."""
        return columns
