"""Runs a package of instruction words: values from the functional simulator, times from timing."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from tilewright.codegen.program.files import remarks_of
from tilewright.codegen.program.interface import Profile
from tilewright.codegen.program.stepped import Simulation, SteppedRunner, Times
from tilewright.codegen.words import disassemble
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.simulate.races import race_error
from tilewright.simulate.timing import Timeline
from tilewright.simulate.trace import write_trace
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.package import Package
from tilewright.targets.generic.program import Program, decode
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timing import check_races, time_program, timed_program


class InstructionRunner(SteppedRunner):
    """A package on the simulated machine."""

    def __init__(self, package: Package) -> None:
        super().__init__(package.parts)
        self.package = package
        file = self.parts.file
        self.program: Program = decode(package.instructions, package.words)
        activations = np.zeros(file.arenas[ACTIVATIONS], np.uint8)
        self.arenas = {WEIGHTS: self.parts.weights, ACTIVATIONS: activations}
        images = [*self.arenas.items(), (TABLES, self.parts.image)]
        self._simulator = Simulator(
            self.program, [(file.bases[name], data) for name, data in images if data.size]
        )

    @property
    def instructions(self) -> int:
        """Number of instructions."""
        return self.program.size

    @cached_property
    def timeline(self) -> Timeline:
        """Simulated times; they do not depend on the inputs."""
        return time_program(self.program, self.kernels)

    def simulation(self, *, traced: bool) -> Simulation:
        """The functional simulator; times come from the timing core."""
        self._simulator.memories.begin(self.seed)
        return _Simulation(self, self._simulator)

    def timed(self) -> Profile:
        """The profile of any run, without the host's time: nothing is run."""
        return self.profile(self.times(), None)

    def times(self) -> Times:
        """The times of any run."""
        return Times.of(self.timeline, self.parts.machine)

    def refuse_races(self) -> None:
        """Raise TilewrightError (``simulate-race``) if the program lacks a wait."""
        report = check_races(self.program, self.kernels)
        if report.races or report.unwritten:
            rows = self.parts.file.kernels
            raise race_error(report, [rows[k].symbol for k in self.kernels.tolist()])

    def listing(self) -> str:
        """The disassembly, with kernels and nodes as remarks."""
        rows = self.parts.file.kernels
        return disassemble(self.package.instructions, self.package.words, remarks_of(rows))

    def write_trace(self, path: Path) -> None:
        """The timeline of any run for Perfetto."""
        rows = self.parts.file.kernels
        which, _ = self.program.place
        names = [group.instruction.mnemonic for group in self.program.groups]
        write_trace(
            path,
            self.timeline,
            timed_program(self.program, self.kernels),
            self.parts.machine,
            kernels=[row.symbol for row in rows],
            nodes=[row.nodes for row in rows],
            label=lambda command: names[int(which[command])],
        )


class _Simulation:
    """Values from the functional simulator, times from the timing core."""

    def __init__(self, runner: InstructionRunner, simulator: Simulator) -> None:
        self.run = simulator.run
        self.times = runner.times
        self.write_trace = runner.write_trace

    def reveal(self, held: tuple[int, int, int]) -> None:
        """No result stays on the chip: see ``MemoryRecord.keeps_values``."""
