"""The target: packages of words, and the runner that simulates them."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tern_target.isa import INSTRUCTIONS
from tern_target.lower import lowered
from tern_target.machine import MACHINE
from tern_target.simulate import Core, timed
from tilewright.codegen import words
from tilewright.codegen.program.files import KernelRow, ProgramParts
from tilewright.codegen.program.interface import Compilation, Runner, RunTimer
from tilewright.codegen.program.stepped import WordRunner
from tilewright.codegen.program.timed import row_timer, tile_timer
from tilewright.codegen.program.word_files import IMAGE, write_words
from tilewright.codegen.words import Instruction, InstructionSet
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.numerics.poison import spoil
from tilewright.planning import Timer
from tilewright.simulate import find_races
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.ordering import refuse_faults
from tilewright.targets.base import WordTarget


class TernRunner(WordRunner):
    """A package on the simulated machine."""

    def __init__(self, parts: ProgramParts) -> None:
        self.program = words.decode(INSTRUCTIONS, words.from_bytes(INSTRUCTIONS, parts.data))
        super().__init__(parts, self.program)
        self.statements = self.program.statements()
        main = np.zeros(parts.file.bases[IMAGE], np.uint8)
        bases, sizes = parts.file.bases, parts.file.arenas
        self.arenas = {name: main[bases[name] :][:size] for name, size in sizes.items()}
        self.arenas["weights"][:] = parts.weights
        self.memories = {m.name: np.zeros(m.bytes or 0, np.uint8) for m in parts.machine.memories}
        self.memories[MACHINE.main] = main

    @cached_property
    def commands(self) -> TimedArray:
        """The program as the timing core sees it."""
        groups = [(g.instruction.mnemonic, g.columns, g.rows) for g in self.program.groups]
        table, self.ordering = timed(groups, self.program.size)
        table["kernel"] = self.kernels
        return table

    def begin(self) -> None:
        """The memories as a run finds them."""
        self.core = Core(self.memories)
        for name, data in self.memories.items():
            if name != MACHINE.main:
                spoil(data, self.seed)

    def execute(self, kernel: KernelRow) -> None:
        """Execute instructions one after the other, as the search for races allows."""
        for command in range(kernel.start, kernel.end):
            statement = self.statements[command]
            try:
                self.core.execute(command, statement.mnemonic, statement.values)
            except (IndexError, ValueError) as error:  # words that no compiler wrote
                raise refuse("simulate-bounds", str(error), f"instruction {command}") from None

    def memory(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a memory on the chip."""
        return self.memories[name]

    def refuse_races(self) -> None:
        """Refuse a program that lacks a flag, or sets one too often."""
        refuse_faults(self.commands, self.ordering, lambda row: f"instruction {row}")
        self.begin()
        for kernel in self.parts.file.kernels:
            self.execute(kernel)
        accesses = self.core.accesses()
        self.refuse_races_of(find_races(self.commands, accesses, self.parts.machine))


class TernTarget(WordTarget):
    """Tern, simulated bit for bit and cycle by cycle."""

    name = "tern"
    family = "tern"
    description = "a made-up processor whose words set flags and wait for them, simulated"
    elements = ("fixed16",)
    implements = frozenset({Capability.SYNCHRONISATION, Capability.RESIDENT})
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

    def run_timer(self, machine: Machine, arenas: Mapping[str, int]) -> RunTimer:
        """The same, for kernels of which one leaves values on the chip for others."""
        return row_timer(machine)
