"""Runs a package of instruction words: values from the functional simulator, times from timing."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.files import KernelRow, ProgramParts, remarks_of
from tilewright.codegen.program.stepped import WordRunner
from tilewright.codegen.words import Units, disassemble, from_bytes
from tilewright.ir.arenas import WEIGHTS
from tilewright.simulate.commands import TimedArray
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.memories import Segment
from tilewright.targets.generic.program import Program, decode
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timing import check_races, timed_program


class InstructionRunner(WordRunner):
    """A package on the simulated machine."""

    def __init__(self, parts: ProgramParts, instructions: InstructionSet) -> None:
        self.instruction_set = instructions
        self.words: Units = from_bytes(instructions, parts.data)
        self.program: Program = decode(instructions, self.words)
        super().__init__(parts, self.program)
        file = parts.file
        images = [*self.arenas.items(), (TABLES, self.parts.image)]
        constants, main = list[Segment](), list[Segment]()
        for name, data in images:
            apart = name == WEIGHTS and len(instructions.machine.homes) > 1
            (constants if apart else main).extend([(file.bases[name], data)] if data.size else [])
        self._simulator = Simulator(self.program, main, constants)

    @cached_property
    def commands(self) -> TimedArray:
        """The program as the timing core sees it."""
        return timed_program(self.program, self.kernels)

    def begin(self) -> None:
        """The memories as a run finds them."""
        self._simulator.memories.begin(self.seed)

    def lose_chip(self) -> None:
        """Fill the memories on the chip with a pattern."""
        self._simulator.memories.begin(self.seed)

    def execute(self, kernel: KernelRow) -> None:
        """Execute the instructions of a kernel; raises TilewrightError."""
        self._simulator.run(kernel.start, kernel.end)

    def refuse_races(self) -> None:
        """Raise TilewrightError (``simulate-race``) if the program lacks a wait."""
        self.refuse_races_of(check_races(self.program, self.kernels))

    def listing(self) -> str:
        """The disassembly, with kernels and nodes as remarks."""
        rows = self.parts.file.kernels
        return disassemble(self.instruction_set, self.words, remarks_of(rows))

    def memory(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a memory on the chip."""
        return self._simulator.memories.local[name]
