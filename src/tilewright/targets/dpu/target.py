"""The target objects that the entry points name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tilewright.codegen.program.interface import Compilation, Runner, RunTimer
from tilewright.codegen.words import InstructionSet, decode, from_bytes
from tilewright.errors import Problem, TilewrightError
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.planning import Timer
from tilewright.targets.base import WordTarget
from tilewright.targets.dpu.core import Core, core_named
from tilewright.targets.dpu.formats import CoreInstruction
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.package import WORD_BYTES, read_package, write_package
from tilewright.targets.dpu.registers import BIASES
from tilewright.targets.dpu.runner import CoreRunner
from tilewright.targets.dpu.text import manual
from tilewright.targets.dpu.timer import run_timer, timer


class CoreTarget(WordTarget):
    """A core of DNNVM in one of its sizes, simulated bit for bit."""

    takes_computed_weights = False
    falls_back = True
    elf_sections = MappingProxyType(
        {
            "program.bin": ".dpu.text",
            "weights.bin": ".dpu.params",
            f"{BIASES}.bin": ".dpu.bias",
            "program.json": ".dpu.meta",
        }
    )
    family = "dpu"
    image = BIASES
    implements = frozenset(
        {
            Capability.ISSUE_CYCLES,
            Capability.IN_FLIGHT,
            Capability.ISSUE,
            Capability.CIRCULAR,
            Capability.RESIDENT,
            Capability.SYNCHRONISATION,
            Capability.GRAIN,
        }
    )

    def __init__(self, core: Core) -> None:
        self.core = core
        self.name = core.name
        self.description = (
            f"FPGA CNN core of DNNVM: {core.rows} x {core.channels} x {core.channels} products of "
            f"int8 a cycle, {core.clock_hz / 1e6:g} MHz, simulated"
        )

    def machine(self) -> Machine:
        """The core as planning sees it."""
        return machine_of(self.core)

    def check_machine(self, machine: Machine, source: str = "") -> None:
        """Refuse what the words do not follow: other banks, primitives or arithmetic."""
        super().check_machine(machine, source)
        known, problems = self.machine(), list[Problem]()
        for key in ("primitives", "own", "layouts", "element", "synchronisation", "cores"):
            if getattr(machine, key) != getattr(known, key):
                problems.append(_fixed(key, self.name))
        if [m.name for m in machine.memories] != [m.name for m in known.memories]:
            problems.append(_fixed("memory", self.name))
        else:
            for given, core in zip(machine.memories, known.memories, strict=True):
                keys = [
                    key for key in ("granule", "banks") if getattr(given, key) != getattr(core, key)
                ]
                keys += ["resident"] * (not {*given.resident} <= {*core.resident})
                keys += ["bytes"] * ((given.bytes or 0) > (core.bytes or 0))
                problems += [_fixed(f"memory.{given.name}.{key}", self.name) for key in keys]
        if problems:
            raise TilewrightError(problems)

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write words, weights, biases and the graph; see package.py."""
        write_package(compilation, directory, self.core)

    def load(self, directory: Path) -> Runner:
        """A runner on the simulated core."""
        return CoreRunner(self.core, *read_package(directory, self.core))

    def takes_loops(self, machine: Machine) -> bool:
        """Return True: the host runs the rounds of loops."""
        del machine
        return True

    def simulator(self, machine: Machine) -> Timer:
        """Cycles of the words of a kernel; planning prices the commands of its tile program, which
        takes less time."""
        return timer(self.core, machine)

    def run_timer(self, machine: Machine, arenas: Mapping[str, int]) -> RunTimer:
        """Cycles of the words of kernels in a row, with what one leaves in the banks for others."""
        return run_timer(self.core, machine)

    def elf_symbols(self, directory: Path) -> Sequence[tuple[str, str, int, int]]:
        """The kernels' instructions in the words."""
        parts, segments = read_package(directory, self.core)
        starts = segments.word_offsets
        return [
            (row.symbol, ".dpu.text", starts[row.start], starts[row.end] - starts[row.start])
            for row in parts.file.kernels
        ]

    def instruction_set(self, machine: Machine) -> InstructionSet[CoreInstruction]:
        """The instructions of the core's revision, of several words each."""
        return REVISIONS[self.core.isa]

    def word_bytes(self, machine: Machine) -> int:
        """Bytes of a word."""
        return WORD_BYTES

    def instruction_count(self, words: bytes, machine: Machine) -> int:
        """Instructions of a program."""
        instructions = self.instruction_set(machine)
        return decode(instructions, from_bytes(instructions, words)).size

    def manual(self, machine: Machine) -> str:
        """Return the text of the core's instruction manual."""
        return manual(self.core)


def _fixed(key: str, name: str) -> Problem:
    return Problem(
        "machine-capability",
        f"{name} has fixed banks, instructions and arithmetic; this key cannot vary",
        key,
        "choose another core: dpu-b512 to dpu-b4096, zu2, zu9",
    )


def _target(name: str) -> CoreTarget:
    return CoreTarget(core_named(name))


B512 = _target("dpu-b512")
B800 = _target("dpu-b800")
B1024 = _target("dpu-b1024")
B1152 = _target("dpu-b1152")
B1600 = _target("dpu-b1600")
B2304 = _target("dpu-b2304")
B3136 = _target("dpu-b3136")
B4096 = _target("dpu-b4096")
B4096_ISA0 = _target("dpu-b4096-isa0")
ZU2 = _target("zu2")
ZU9 = _target("zu9")
