"""A network's programs, one after another in one file: decoded, timed and checked as a whole.

Each program ends with END, and the host runs between two of them: all of the second waits for all
of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import decode, from_bytes
from tilewright.errors import Problem
from tilewright.simulate.commands import TIMED, TimedArray
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.operations import Operation, operations_of
from tilewright.targets.dpu.timing import check_program, commands_of

WORD_BYTES = 4


@dataclass(frozen=True)
class Segments:
    """The programs of a file of words."""

    core: Core
    programs: tuple[tuple[Operation, ...], ...]

    @classmethod
    def read(cls, core: Core, data: bytes) -> Segments:
        """Read words; raises TilewrightError (``isa-``, ``program-``)."""
        instructions = REVISIONS[core.isa]
        units = from_bytes(instructions, data)
        whole = decode(instructions, units)
        ends = next((g.rows for g in whole.groups if g.instruction.mnemonic == "end"), None)
        size = instructions.by_mnemonic["end"].units
        cuts = [] if ends is None else (whole.starts[ends] + size).tolist()
        if not cuts or cuts[-1] != len(units):
            cuts.append(len(units))
        parts = [units[a:b] for a, b in zip([0, *cuts[:-1]], cuts, strict=True) if b > a]
        programs = [tuple(operations_of(decode(instructions, part))) for part in parts]
        return cls(core, tuple(programs))

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """All operations; their own numbers are those in their programs."""
        return tuple(operation for program in self.programs for operation in program)

    @cached_property
    def word_offsets(self) -> list[int]:
        """The byte at which each operation begins in the file, and its end."""
        instructions = REVISIONS[self.core.isa]
        sizes = [instructions.by_mnemonic[op.mnemonic].units for op in self.operations]
        return [0, *accumulate(WORD_BYTES * size for size in sizes)]

    def commands(self, kernels: NDArray[np.int64]) -> TimedArray:
        """TIMED records of all programs; ``kernels`` has the kernel of every operation."""
        tables: list[TimedArray] = [np.zeros(0, TIMED)]
        before = np.zeros(len(CATEGORIES), np.int64)
        for program in self.programs:
            table = commands_of(self.core, program)
            table["waits"][:, : len(CATEGORIES)] += before.astype(np.int32)
            before = before + np.bincount(table["engine"], minlength=len(CATEGORIES))
            tables.append(table)
        commands = np.concatenate(tables)
        # An engine runs its commands in order: what waits for its own earlier ones needs no count.
        rows = np.arange(len(commands))
        commands["waits"][rows, commands["engine"]] = 0
        commands["kernel"] = kernels
        return commands

    def problems(self) -> list[Problem]:
        """Races, deadlocks and tokens that are left over, of every program."""
        return [
            problem
            for program in self.programs
            for problem in check_program(self.core, program).problems
        ]
