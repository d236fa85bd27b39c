"""The target: packages of C, and the runner that builds it with the API's stand-in."""

import ctypes
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files as resources
from itertools import pairwise
from pathlib import Path

import numpy as np

from heron_target.emit import kernel_text
from heron_target.machine import MACHINE
from tilewright.codegen.host.library import load_library, opened
from tilewright.codegen.program import files
from tilewright.codegen.program.interface import Compilation, Runner, RunTimer
from tilewright.codegen.program.stepped import TimedRunner
from tilewright.codegen.program.timed import one_by_one, row_timer, tile_timer
from tilewright.codegen.program.word_files import IMAGE
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.numerics.poison import byte_of
from tilewright.planning import Timer
from tilewright.simulate.commands import TIMED, TimedArray
from tilewright.targets.base import Target, sources_text
from tilewright.tile.dialect import ProgramOp

FLAGS = ("-std=gnu99", "-O2", "-fPIC", "-Wall", "-Wextra")
API = ("include/heron.h", "shim/heron.c")
HEAD = """\
#include "heron.h"

struct memory { uint64_t weights, activations; }; /* where the arenas lie */
"""


class HeronRunner(TimedRunner):
    """A package whose C runs on the host; the timing core has the times of its commands."""

    def __init__(self, parts: files.ProgramParts) -> None:
        super().__init__(parts)
        activations = np.zeros(parts.file.arenas["activations"], np.uint8)
        self.arenas = {"weights": np.array(parts.weights), "activations": activations}
        self.first = 2
        """The queue that runs ahead of the others on the host."""

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The C, built when it is first asked for."""
        library = load_library(self.parts.directory / "c", "heron", FLAGS)
        return opened(library, "heron_kernel", "heron_start", "heron_races", "heron_local")

    @cached_property
    def commands(self) -> TimedArray:
        """The commands that the C gives, as the timing core takes them: of each kernel."""
        return np.frombuffer(self.parts.data, TIMED)

    @property
    def instructions(self) -> int:
        """Number of commands."""
        return len(self.commands)

    def mnemonic(self, command: int) -> str:
        """The queue of a command."""
        return MACHINE.engines[self.commands["engine"][command]].name

    def build(self) -> None:
        """Build the C."""
        super().build()
        _ = self.library

    def begin(self) -> None:
        """Local memory as a run finds it."""
        self.library.heron_start(byte_of(self.seed, 0xA5), self.first)

    def execute(self, kernel: files.KernelRow) -> None:
        """Run the function of a kernel."""
        arenas = [self.arenas[name].ctypes.data for name in ("weights", "activations")]
        (number,) = set(self.kernels[kernel.start : kernel.end].tolist())
        self.library.heron_kernel(number, (ctypes.c_uint64 * 2)(*arenas))

    def reveal(self, result: files.StayingResult) -> None:
        """Copy a result that stays in local memory to its place among the activations."""
        content = np.zeros(result.bytes, np.uint8)
        pointer = content.ctypes.data_as(ctypes.c_void_p)
        self.library.heron_local(pointer, result.address, result.bytes)
        self.arenas["activations"][result.place : result.place + result.bytes] = content

    def refuse_races(self) -> None:
        """Refuse a program that lacks a wait: the stand-in knows what orders uses of each byte."""
        self.begin()
        for row in self.parts.file.kernels:
            self.execute(row)
        if races := self.library.heron_races():
            raise refuse("simulate-race", f"no wait orders {races} uses of local memory")


class HeronTarget(Target):
    """Heron: C for its vendor's API, run here on a stand-in of it."""

    name = "heron"
    family = "heron"
    description = "a made-up accelerator: C that calls its vendor's asynchronous API"
    elements = ("fixed16",)
    implements = frozenset({Capability.IN_FLIGHT, Capability.RESIDENT})
    falls_back = True

    def machine(self) -> Machine:
        """The machine of heron.toml."""
        return MACHINE

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write the C with the API and its stand-in, the weights, the graph and the times."""
        programs: list[ProgramOp] = []
        texts: list[str] = []

        def kernel(program: ProgramOp) -> None:
            texts.append(kernel_text(program, f"kernel{len(texts)}"))
            programs.append(program)

        steps, kernels = files.lower_kernels(compilation, kernel)
        cases = "".join(f"    case {n}: kernel{n}(memory); break;\n" for n in range(len(texts)))
        table = "void heron_kernel(int number, const struct memory *memory)\n{\n"
        table += f"    switch (number) {{\n{cases}    default: break;\n    }}\n}}\n"
        for path in API:
            place = directory / "c" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text((resources("heron_target") / "api" / place.name).read_text())
        (directory / "c" / "src").mkdir()
        (directory / "c" / "src" / "network.c").write_text("\n".join([HEAD, *texts, table]))
        commands = one_by_one(programs, MACHINE)
        ends = np.searchsorted(commands["kernel"], range(len(texts) + 1)).tolist()
        addresses = files.Addresses.of(compilation, IMAGE)
        files.write_program(
            compilation,
            directory,
            addresses,
            words=commands.tobytes(),
            word_bytes=TIMED.itemsize,
            weights=files.weights_of(compilation, addresses),
            image=b"",
            kernels=files.kernel_rows(compilation, kernels, pairwise(ends)),
            steps=steps,
        )

    def load(self, directory: Path) -> Runner:
        """A runner of the C on the host."""
        parts = files.read_program(directory, IMAGE)
        files.check_words(parts, TIMED.itemsize)
        return HeronRunner(parts)

    def timer(self, machine: Machine) -> Timer:
        """The timing core, for the planner's best schedules of a kernel."""
        return tile_timer(machine)

    def run_timer(self, machine: Machine, arenas: Mapping[str, int]) -> RunTimer:
        """The same, for kernels of which one leaves values on the chip for others."""
        return row_timer(machine)

    def listing(self, directory: Path) -> str:
        """The kernels' C."""
        return sources_text(directory / "c", "src/*.c")
