"""Runs a package: values from the functional simulator, times from the timing core."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.files import HeldResult
from tilewright.codegen.program.interface import Profile
from tilewright.codegen.program.stepped import Simulation, SteppedRunner, Times
from tilewright.errors import TilewrightError
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.numerics.poison import spoil
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.timing import Timeline
from tilewright.simulate.trace import write_trace
from tilewright.targets.dpu.execute import State, execute
from tilewright.targets.dpu.package import Package
from tilewright.targets.dpu.registers import BIASES, GUARD, REGISTERS
from tilewright.targets.dpu.segments import kernel_of_each


class CoreRunner(SteppedRunner):
    """A package on the simulated core."""

    def __init__(self, package: Package) -> None:
        super().__init__(package.parts)
        self.package = package
        self.segments = package.segments
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
        """Number of instructions."""
        return len(self.segments.operations)

    @cached_property
    def kernels(self) -> NDArray[np.int64]:
        """The kernel of every instruction."""
        rows = [(row.start, row.end) for row in self.parts.file.kernels]
        return kernel_of_each(self.instructions, rows)

    @cached_property
    def commands(self) -> TimedArray:
        """The program as the timing core sees it."""
        return self.segments.commands(self.kernels)

    @cached_property
    def timeline(self) -> Timeline:
        """Simulated times; they do not depend on the inputs."""
        return self.segments.time(self.commands, self.parts.machine)

    def simulation(self, *, traced: bool) -> Simulation:
        """The functional simulator; times come from the timing core."""
        return _Simulation(self)

    def timed(self) -> Profile:
        """The profile of any run, without the host's time: nothing is run."""
        return self.profile(self.times(), None)

    def times(self) -> Times:
        """The times of any run."""
        return Times.of(self.timeline, self.parts.machine)

    def refuse_races(self) -> None:
        """Raise TilewrightError (``program-race``) if the program lacks a token."""
        problems = self.segments.problems()
        if problems:
            raise TilewrightError(problems)

    def write_trace(self, path: Path) -> None:
        """The timeline of any run for Perfetto."""
        rows = self.parts.file.kernels
        write_trace(
            path,
            self.timeline,
            self.commands,
            self.parts.machine,
            kernels=[row.symbol for row in rows],
            nodes=[row.nodes for row in rows],
            label=lambda command: self.segments.operations[command].mnemonic,
        )


class _Simulation:
    """One run: instructions in the program's order, which the tokens allow (``refuse_races``)."""

    def __init__(self, runner: CoreRunner) -> None:
        self._operations = runner.segments.operations
        spoil(runner.guarded[:GUARD], runner.seed)
        spoil(runner.guarded[-GUARD:], runner.seed)
        self._state = State(runner.package.core, runner.registers, runner.seed)
        self.times = runner.times
        self.write_trace = runner.write_trace

    def run(self, start: int, end: int) -> None:
        """Execute instructions ``start`` to ``end``; raises TilewrightError."""
        for operation in self._operations[start:end]:
            execute(self._state, operation)

    def reveal(self, held: HeldResult) -> None:
        """No result stays on the chip: see ``MemoryRecord.keeps_values``."""
