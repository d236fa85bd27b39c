"""Instructions of one kind on their way into a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.words import Column
from tilewright.simulate.commands import TimedArray
from tilewright.targets.generic.isa import Instruction, InstructionSet
from tilewright.targets.generic.timing import timed_of


@dataclass
class Part:
    """Instructions of one kind in one kernel, and their keys in program order."""

    instruction: Instruction
    columns: dict[str, Any]
    keys: Column

    def timed(self, instructions: InstructionSet) -> TimedArray:
        """Return the TIMED records of the instructions."""
        count = self.keys.size
        columns = {
            field.name: np.broadcast_to(
                np.asarray(self.columns.get(field.name, field.initial), np.int64), (count,)
            )
            for field in self.instruction.format.fields
        }
        return timed_of(self.instruction, columns, count, instructions.machine)
