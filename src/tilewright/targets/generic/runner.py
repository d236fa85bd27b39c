"""Runs a package of instruction words: values from the functional simulator, times from timing."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tilewright.codegen.program.files import HeldResult, remarks_of
from tilewright.codegen.program.stepped import WordRunner
from tilewright.codegen.words import disassemble
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.simulate.commands import TimedArray
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.package import Package
from tilewright.targets.generic.program import Program, decode
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timing import check_races, timed_program


class InstructionRunner(WordRunner):
    """A package on the simulated machine."""

    def __init__(self, package: Package) -> None:
        self.program: Program = decode(package.instructions, package.words)
        super().__init__(package.parts, self.program)
        self.package = package
        file = self.parts.file
        activations = np.zeros(file.arenas[ACTIVATIONS], np.uint8)
        self.arenas = {WEIGHTS: self.parts.weights, ACTIVATIONS: activations}
        images = [*self.arenas.items(), (TABLES, self.parts.image)]
        self._simulator = Simulator(
            self.program, [(file.bases[name], data) for name, data in images if data.size]
        )

    @cached_property
    def commands(self) -> TimedArray:
        """The program as the timing core sees it."""
        return timed_program(self.program, self.kernels)

    def begin(self) -> None:
        """The memories as a run finds them."""
        self._simulator.memories.begin(self.seed)

    def execute(self, start: int, end: int) -> None:
        """Execute instructions; raises TilewrightError."""
        self._simulator.run(start, end)

    def refuse_races(self) -> None:
        """Raise TilewrightError (``simulate-race``) if the program lacks a wait."""
        self.refuse_races_of(check_races(self.program, self.kernels))

    def listing(self) -> str:
        """The disassembly, with kernels and nodes as remarks."""
        rows = self.parts.file.kernels
        return disassemble(self.package.instructions, self.package.words, remarks_of(rows))

    def reveal(self, held: HeldResult) -> None:
        """Copy a result that stays on the chip to its place among the activations."""
        data = self._simulator.memories.local[held.memory]
        result = data[held.address : held.address + held.bytes]
        self.arenas[ACTIVATIONS][held.place : held.place + held.bytes] = result
