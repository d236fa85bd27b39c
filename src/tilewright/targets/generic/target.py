"""The target of machines that have no folder of their own: instructions from the description."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.codegen.program.interface import Compilation, Runner, RunTimer
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.planning import Timer
from tilewright.targets.base import WordTarget
from tilewright.targets.generic.c.runner import CRunner
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import InstructionSet, derive
from tilewright.targets.generic.manual import manual
from tilewright.targets.generic.package import read_package, write_package
from tilewright.targets.generic.runner import InstructionRunner
from tilewright.targets.generic.timer import run_timer, timer


class InstructionTarget(WordTarget):
    """A target whose packages hold instruction words for the simulators.

    A target of its own overrides ``machine``, and ``opcodes`` where its encoding is fixed.
    """

    opcodes: Mapping[str, int] = {}
    """The opcodes of instructions by their names, where they are fixed."""

    elements = ("float32", "float16", "bfloat16", "fixed16", "fixed8", "int8")
    implements = frozenset(
        {
            *(
                Capability.ISSUE_CYCLES,
                Capability.IN_FLIGHT,
                Capability.TRANSACTION,
                Capability.EFFICIENCY,
            ),
            *(Capability.JOINED, Capability.CIRCULAR, Capability.C, Capability.SYNCHRONISATION),
            *(Capability.TRANSFORMS, Capability.ELEMENT, Capability.FILLS, Capability.PADDED),
            Capability.HOLDS,
            Capability.RESIDENT,
        }
    )
    falls_back = True
    completes_machines = True
    image = TABLES

    def instruction_set(self, machine: Machine) -> InstructionSet:
        """The instructions of a machine."""
        return derive(machine, self.opcodes)

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write words, weights, tables and the graph; see package.py."""
        write_package(compilation, directory, self.instruction_set(compilation.machine))

    def load(self, directory: Path) -> Runner:
        """A runner on the simulated machine."""
        parts, instructions = read_package(directory, self.instruction_set)
        return (InstructionRunner if parts.machine.c is None else CRunner)(parts, instructions)

    def takes_loops(self, machine: Machine) -> bool:
        """All machines: of one with C functions, the body's C lies in the folder of its loop."""
        return True

    def timer(self, machine: Machine) -> Timer | None:
        """The timing core on the kernel's commands."""
        return timer(machine, self.instruction_set(machine))

    def run_timer(self, machine: Machine, arenas: Mapping[str, int]) -> RunTimer:
        """The timing core on the commands of kernels in a row."""
        return run_timer(self.instruction_set(machine), arenas)

    def manual(self, machine: Machine) -> str:
        """Return the text of the machine's instruction manual."""
        return manual(self.instruction_set(machine))


class BuiltTarget(InstructionTarget):
    """A machine in a size that is built, whose instructions have fixed opcodes."""

    def __init__(self, machine: Machine, description: str, opcodes: Mapping[str, int]) -> None:
        self.name, self.description, self.opcodes = machine.name, description, opcodes
        self._machine = machine

    def machine(self) -> Machine:
        """The machine in this size."""
        return self._machine


class GenericTarget(InstructionTarget):
    """Any machine that a file describes."""

    name = "generic"
    description = "any machine written as a TOML file, simulated through derived instructions"

    def machine(self) -> Machine:
        """Refuses: the description comes from the caller."""
        raise refuse(
            "target-machine",
            "the generic target needs a machine",
            help="name a machine file: --target machine.toml",
        )
