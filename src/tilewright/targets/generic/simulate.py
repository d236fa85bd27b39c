"""The functional simulator: decoded words, executed on the bytes of the memories.

Instructions run one after the other in program order; the race check (timing.py) proves that the
engines, running side by side, compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.targets.generic.encode import Program
from tilewright.targets.generic.family import Unit
from tilewright.targets.generic.memories import Memories, Segment
from tilewright.targets.generic.timing import check_bounds


class Simulator:
    """A program ready to run on memories of its own."""

    def __init__(self, program: Program, main: Sequence[Segment]) -> None:
        self.program = program
        machine = program.instructions.machine
        self.memories = Memories(machine, main)
        self.unit = Unit(machine, self.memories)
        check_bounds(program, dict(self.memories.sizes()))
        self._which, self._index = (part.tolist() for part in program.place)
        self._names = [list(group.columns) for group in program.groups]
        self._rows: list[list[tuple[Any, ...]]] = [
            list(zip(*(column.tolist() for column in group.columns.values()), strict=True))
            for group in program.groups
        ]

    def run(self, start: int = 0, end: int | None = None) -> None:
        """Execute instructions ``start`` to ``end``; raises TilewrightError."""
        groups = self.program.groups
        with np.errstate(all="ignore"):
            for row in range(start, self.program.size if end is None else end):
                which = self._which[row]
                one = groups[which].instruction
                values = dict(
                    zip(self._names[which], self._rows[which][self._index[row]], strict=True)
                )
                try:
                    one.family.execute(self.unit, one.move or one.primitive, values)
                except TilewrightError as error:
                    problem = error.problems[0]
                    raise refuse(
                        problem.code, problem.reason, f"instruction {row} ({one.mnemonic})"
                    ) from None
                except (ValueError, OverflowError, MemoryError, ZeroDivisionError) as error:
                    raise refuse(
                        "simulate-failed", str(error), f"instruction {row} ({one.mnemonic})"
                    ) from None
