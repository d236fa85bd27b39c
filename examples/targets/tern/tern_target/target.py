"""The target: packages of words, and the runner that simulates them."""

from functools import cached_property
from pathlib import Path

import numpy as np

from tern_target.isa import INSTRUCTIONS
from tern_target.lower import lowered
from tern_target.machine import MACHINE
from tern_target.simulate import Core, timed
from tilewright.codegen import words
from tilewright.codegen.program.files import ProgramParts
from tilewright.codegen.program.interface import Compilation, Runner
from tilewright.codegen.program.stepped import TimedRunner
from tilewright.codegen.program.timed import tile_timer
from tilewright.codegen.program.word_files import IMAGE, write_words
from tilewright.codegen.words import Instruction, InstructionSet
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.numerics.poison import spoil
from tilewright.planning import Timer
from tilewright.simulate import find_races
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.ordering import refuse_faults
from tilewright.simulate.races import race_error
from tilewright.targets.words import WordTarget


class TernRunner(TimedRunner):
    """A package on the simulated machine."""

    def __init__(self, parts: ProgramParts) -> None:
        super().__init__(parts)
        self.program = words.decode(INSTRUCTIONS, words.from_bytes(INSTRUCTIONS, parts.data))
        self.groups = [(g.instruction.mnemonic, g.columns, g.rows) for g in self.program.groups]
        self.statements = self.program.statements()
        main = np.zeros(parts.file.bases[IMAGE], np.uint8)
        self.arenas = {
            name: main[base : base + parts.file.arenas[name]]
            for name, base in parts.file.bases.items()
            if name != IMAGE
        }
        self.arenas["weights"][:] = parts.weights
        self.memories = {m.name: np.zeros(m.bytes or 0, np.uint8) for m in parts.machine.memories}
        self.memories[MACHINE.main] = main

    @property
    def instructions(self) -> int:
        """Number of instructions."""
        return self.program.size

    @cached_property
    def commands(self) -> TimedArray:
        """The program as the timing core sees it."""
        table, self.ordering = timed(self.groups, self.program.size)
        table["kernel"] = self.kernels
        return table

    def mnemonic(self, command: int) -> str:
        """The name of an instruction."""
        return self.program.mnemonic(command)

    def begin(self) -> None:
        """The memories as a run finds them."""
        self.core = Core(self.memories)
        for name, data in self.memories.items():
            if name != MACHINE.main:
                spoil(data, self.seed)

    def execute(self, start: int, end: int) -> None:
        """Execute instructions one after the other, as the search for races allows."""
        for command in range(start, end):
            self.core.execute(
                command, self.statements[command].mnemonic, self.statements[command].values
            )

    def reveal(self, held: tuple[int, int, int]) -> None:
        """Copy a result that stays in ``tile`` to its place among the activations."""
        address, place, size = held
        self.arenas["activations"][place : place + size] = self.memories["tile"][address:][:size]

    def refuse_races(self) -> None:
        """Refuse a program that lacks a flag, or sets one too often."""
        refuse_faults(self.commands, self.ordering, lambda row: f"instruction {row}")
        self.begin()
        self.execute(0, self.program.size)
        report = find_races(self.commands, self.core.accesses(), self.parts.machine)
        if not report.clean:
            rows = self.parts.file.kernels
            raise race_error(report, [rows[k].symbol for k in self.kernels.tolist()])


class TernTarget(WordTarget):
    """Tern, simulated bit for bit and cycle by cycle."""

    name = "tern"
    family = "tern"
    description = "a made-up processor whose words set flags and wait for them, simulated"
    elements = ("fixed16",)
    implements = frozenset({Capability.SYNCHRONISATION})
    falls_back = True

    def machine(self) -> Machine:
        """The machine of tern.toml."""
        return MACHINE

    def instruction_set(self, machine: Machine) -> InstructionSet[Instruction]:
        """The one set of all Terns."""
        return INSTRUCTIONS

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write words, weights and the graph."""
        write_words(compilation, directory, INSTRUCTIONS, lowered)

    def load(self, directory: Path) -> Runner:
        """A runner on the simulated machine."""
        return TernRunner(self.parts(directory))

    def timer(self, machine: Machine) -> Timer:
        """The timing core, for the planner's best schedules of a kernel."""
        return tile_timer(machine)
