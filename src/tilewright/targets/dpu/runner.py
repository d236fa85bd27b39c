"""Runs a package: values from the functional simulator, times from the timing core."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.files import KernelRow, ProgramParts
from tilewright.codegen.program.stepped import TimedRunner
from tilewright.errors import TilewrightError
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.numerics.poison import spoil
from tilewright.simulate.commands import TimedArray
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.execute import State, execute
from tilewright.targets.dpu.registers import BIASES, GUARD, REGISTERS
from tilewright.targets.dpu.segments import Segments


class CoreRunner(TimedRunner):
    """A package on the simulated core."""

    def __init__(self, core: Core, parts: ProgramParts, segments: Segments) -> None:
        super().__init__(parts)
        self.core = core
        self.segments = segments
        size = self.parts.file.arenas[ACTIVATIONS]
        self.guarded = guarded = np.empty(size + 2 * GUARD, np.uint8)
        self.arenas = {WEIGHTS: self.parts.weights, ACTIVATIONS: guarded[GUARD:][:size]}
        regions = {WEIGHTS: self.parts.weights, ACTIVATIONS: guarded, BIASES: self.parts.image}
        self.registers = {
            number: np.ascontiguousarray(regions[name].view(np.int8))
            for name, number in REGISTERS.items()
        }

    @property
    def instructions(self) -> int:
        """The number of instructions in the program."""
        return len(self.segments.operations)

    @cached_property
    def kernels(self) -> NDArray[np.int64]:
        """The kernel of every instruction; an END counts as the kernel's before it."""
        kernels = np.zeros(self.instructions, np.int64)
        for number, row in enumerate(self.parts.file.kernels):
            kernels[row.start : row.end + 1] = number
        return kernels

    @cached_property
    def commands(self) -> TimedArray:
        """The program as the timing core sees it."""
        return self.segments.commands(self.kernels)

    def begin(self) -> None:
        """The memories as a run finds them."""
        spoil(self.guarded[:GUARD], self.seed)
        spoil(self.guarded[-GUARD:], self.seed)
        self._state = State(self.core, self.registers, self.seed)

    def lose_chip(self) -> None:
        """Fill the banks with a pattern."""
        self._state = State(self.core, self.registers, self.seed)

    def execute(self, kernel: KernelRow) -> None:
        """Execute instructions in the program's order, which the tokens allow
        (``refuse_races``)."""
        for operation in self.segments.operations[kernel.start : kernel.end]:
            execute(self._state, operation)

    def refuse_races(self) -> None:
        """Raise TilewrightError (``program-race``) if the program lacks a token."""
        problems = self.segments.problems()
        if problems:
            raise TilewrightError(problems)

    def mnemonic(self, command: int) -> str:
        """The name of an instruction."""
        return self.segments.operations[command].mnemonic
