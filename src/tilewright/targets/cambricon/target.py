"""The target objects that the entry points name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.codegen.program.interface import Compilation, Runner, RunTimer
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.planning import Timer
from tilewright.targets.base import Target
from tilewright.targets.cambricon.hlal.assemble import assemble
from tilewright.targets.cambricon.hlal.run import sizes_of
from tilewright.targets.cambricon.machine import ORIGINAL, Configuration, machine
from tilewright.targets.cambricon.manual import manual
from tilewright.targets.cambricon.package import WORD_BYTES, read_package, write_package
from tilewright.targets.cambricon.runner import CambriconRunner
from tilewright.targets.cambricon.statements import disassemble, to_text
from tilewright.targets.cambricon.timer import HONOURS, run_timer, timer


class CambriconTarget(Target):
    """ACC-C in one of its sizes, simulated bit for bit and cycle by cycle."""

    takes_computed_weights = False
    elements = ("fixed16",)
    family = "cambricon"
    honours = HONOURS
    implements = frozenset({Capability.ISSUE, Capability.RESIDENT})
    residents = frozenset({"results", "constants"})
    falls_back = True
    waits_for_host = False

    def __init__(self, size: Configuration = ORIGINAL) -> None:
        self.name = size.name
        lanes = f"{size.lanes} lanes, {size.lanes} x {size.lanes} multipliers"
        self.description = f"Cambricon: matrix and vector instructions, {lanes}, simulated"
        self._machine = machine(size)

    def machine(self) -> Machine:
        """ACC-C in this size."""
        return self._machine

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write words, HLAL, weights, tables and the graph; see package.py."""
        write_package(compilation, directory)

    def load(self, directory: Path) -> Runner:
        """A runner on the simulated machine."""
        return CambriconRunner(read_package(directory))

    def takes_loops(self, machine: Machine) -> bool:
        """The host runs the rounds."""
        del machine
        return True

    def timer(self, machine: Machine) -> Timer | None:
        """The simulator on the kernel's words."""
        return timer(machine)

    def run_timer(self, machine: Machine, arenas: Mapping[str, int]) -> RunTimer | None:
        """The simulator on the kernels' words."""
        return run_timer(machine, arenas)

    def word_bytes(self, machine: Machine) -> int:
        """Bytes of an instruction word."""
        return WORD_BYTES

    def assemble(self, text: str, machine: Machine, name: str = "assembly") -> bytes:
        """Words of an HLAL program, its data beginning at byte 0 of main memory."""
        return assemble(text, name, sizes_of(machine)).words.astype("<u8").tobytes()

    def disassemble(self, data: bytes, machine: Machine) -> str:
        """The text of words."""
        if len(data) % WORD_BYTES:
            raise refuse(
                "isa-length", f"{len(data)} bytes are no whole number of {WORD_BYTES}-byte words"
            )
        return to_text(disassemble(np.frombuffer(data, "<u8").astype(np.uint64)))

    def listing(self, directory: Path) -> str:
        """The program with the kernels and nodes as remarks."""
        try:
            return (directory / "program.hlal").read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise refuse("package-invalid", str(error)[:300], str(directory)) from None

    def manual(self, machine: Machine) -> str:
        """Return the text of the machine's instruction manual."""
        return manual(machine)
