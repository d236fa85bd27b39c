"""The functional simulator: decoded words, executed on the bytes of the memories.

Instructions run one after the other in program order; the race check (timing.py) proves that the
engines, running side by side, compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.targets.generic.family import Unit
from tilewright.targets.generic.memories import Memories, Segment
from tilewright.targets.generic.program import Program
from tilewright.targets.generic.timing import check_bounds

CHUNK = 4096
"""Instructions whose fields are unpacked into Python numbers at a time."""


class Simulator:
    """A program ready to run on memories of its own."""

    def __init__(
        self, program: Program, main: Sequence[Segment], constants: Sequence[Segment] = ()
    ) -> None:
        self.program = program
        machine = program.instructions.machine
        self.memories = Memories(machine, main, constants)
        self.units = {
            opcode: Unit(seen, self.memories)
            for opcode, seen in program.instructions.machines.items()
        }
        check_bounds(program, dict(self.memories.sizes()))
        self._names = [list(group.columns) for group in program.groups]

    def run(self, start: int = 0, end: int | None = None) -> None:
        """Execute instructions ``start`` to ``end``; raises TilewrightError."""
        last = self.program.size if end is None else end
        with np.errstate(all="ignore"):
            for first in range(start, last, CHUNK):
                self._run(first, min(first + CHUNK, last))

    def _run(self, start: int, end: int) -> None:
        """Execute a stretch short enough for its fields to become Python numbers at once."""
        groups = self.program.groups
        which, index = (part[start:end].tolist() for part in self.program.place)
        rows: list[list[tuple[int, ...]]] = []
        firsts: list[int] = []
        for group in groups:
            low, high = np.searchsorted(group.rows, (start, end)).tolist()
            columns = [column[low:high].tolist() for column in group.columns.values()]
            # A barrier has no fields.
            rows.append(list(zip(*columns, strict=True)) if columns else [()] * (high - low))
            firsts.append(low)
        for number, (kind, place) in enumerate(zip(which, index, strict=True)):
            instruction = groups[kind].instruction
            values = dict(zip(self._names[kind], rows[kind][place - firsts[kind]], strict=True))
            try:
                instruction.family.execute(
                    self.units[instruction.opcode],
                    instruction.move or instruction.primitive,
                    values,
                )
            except TilewrightError as error:
                problem = error.problems[0]
                where = f"instruction {start + number} ({instruction.mnemonic})"
                raise refuse(problem.code, problem.reason, where) from None
            except (ValueError, OverflowError, MemoryError, ZeroDivisionError) as error:
                where = f"instruction {start + number} ({instruction.mnemonic})"
                raise refuse("simulate-failed", str(error), where) from None
