"""What instructions of one kind have in common: their fields, meaning, reach and dims."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.machine import Machine, Move, Primitive
from tilewright.targets.generic.accesses import Touch
from tilewright.targets.generic.fields import Column, Columns, Field
from tilewright.targets.generic.memories import Memories
from tilewright.targets.generic.operands import Values

Part = Move | Primitive
"""What of a machine an instruction stands for."""


@dataclass(frozen=True)
class Unit:
    """Where an instruction executes: the machine and its memories."""

    machine: Machine
    memories: Memories

    @property
    def fixed(self) -> bool:
        """Whether elements are fixed point, not float32."""
        return bool(self.machine.fixed_bits)


class Family(ABC):
    """One kind of instruction: fields, meaning, reach and dims, side by side."""

    name: str
    summary: str
    """One sentence."""
    text: str
    """The meaning, for the manual (markdown)."""
    operations: tuple[str, ...] = ()
    """Anchor operations of the graph that instructions of this kind compute."""

    @abstractmethod
    def fields(self, machine: Machine, part: Any) -> tuple[Field, ...]:
        """The fields behind opcode and waits, for one move or primitive of a machine."""

    @abstractmethod
    def execute(self, unit: Unit, part: Any, values: Values) -> None:
        """Do what one instruction does to the memories; refuses what reaches outside them."""

    @abstractmethod
    def touches(self, machine: Machine, part: Any, columns: Columns) -> list[Touch]:
        """What a column of instructions reads and writes."""

    def dims(self, columns: Columns) -> Mapping[str, Column]:
        """The dims that the primitive's cycle expression sees."""
        return columns
