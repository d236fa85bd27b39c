"""Kernels as C: emitted, built with the machine's functions for the host, and run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from tests.targets.generic.kernel_cases import Case, Lowered, lower_case

from tilewright.machine import Machine
from tilewright.machine.model import CFunction, CInterface
from tilewright.planning import Planner
from tilewright.targets.generic.c.host import shim_texts
from tilewright.targets.generic.c.program import kernel_text
from tilewright.targets.generic.c.records import header_text
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.lower import Lowering

FLAGS = (
    *("-std=c99", "-O1", "-ffp-contract=off", "-fPIC"),
    *("-Wall", "-Wextra", "-Werror", "-pedantic"),
)
COMPILERS = tuple(name for name in ("gcc", "clang") if shutil.which(name)) or ("cc",)
FUNCTION = "kernel_under_test"


def with_c(machine: Machine) -> Machine:
    """A machine with a C function for every part."""
    primitives = tuple(
        one.model_copy(update={"c": CFunction(function=f"unit_{one.name.replace('-', '_')}")})
        for one in machine.primitives
    )
    moves = tuple(
        one.model_copy(update={"c": CFunction(function=f"unit_{one.name.replace('-', '_')}")})
        for one in machine.moves
    )
    flags = machine.synchronisation.style == "flags"
    c = CInterface(
        prefix="unit",
        wait="unit_wait",
        finish="unit_finish",
        signal="unit_set" if flags else None,
        barrier="unit_barrier" if flags else None,
    )
    return machine.model_copy(update={"c": c, "moves": moves, "primitives": primitives})


@dataclass
class EmittedKernel:
    """A kernel in C and its main memory."""

    machine: Machine
    text: str
    lowered: Lowered

    def build(self, folder: Path, compiler: str = COMPILERS[0], text: str = "") -> ctypes.CDLL:
        """The kernel as a library of its own, with queues and memories of its own."""
        shared = shim_of(self.machine, folder.parent, compiler)
        folder.mkdir()
        source, library = folder / "kernel.c", folder / "kernel.so"
        source.write_text(text or self.text)
        objects = [str(path) for path in sorted(shared.glob("*.o"))]
        # What a text without one of its waits no longer needs is no matter.
        flags = [flag for flag in FLAGS if not (text and flag == "-Werror")]
        command = [compiler, *flags, f"-I{shared}", str(source), *objects]
        subprocess.run(
            [*command, "-shared", "-o", str(library), "-lm"],
            check=True,
            stderr=subprocess.DEVNULL if text else None,
        )
        return ctypes.CDLL(str(library))

    def run(self, library: ctypes.CDLL, order: int = 0) -> NDArray[Any]:
        """The result in main memory, which is as it was before."""
        memory = self.lowered.memory.copy()
        assert self.machine.c is not None
        getattr(library, f"{self.machine.c.prefix}_host_start")(ctypes.c_uint(order))
        start = memory.ctypes.data
        places = [0, start, start + self.lowered.bases["tables"]]
        getattr(library, FUNCTION)((ctypes.c_uint64 * 3)(*places))
        before, self.lowered.memory = self.lowered.memory, memory
        result = self.lowered.result().copy()
        self.lowered.memory = before
        return result

    @property
    def orders(self) -> range:
        """Each engine early and late, and some orders at random."""
        return range(2 * len(self.machine.engines) + 1 + 4)

    def without_waits(self) -> Iterator[tuple[str, str]]:
        """The text without one of its waits, for each; and that wait."""
        assert self.machine.c is not None
        lines = self.text.splitlines(keepends=True)
        for number, line in enumerate(lines):
            if line.strip().startswith(f"{self.machine.c.wait}("):
                yield line.strip(), "".join(lines[:number] + lines[number + 1 :])


def emitted(case: Case, machine: Machine) -> EmittedKernel:
    """A kernel in C."""
    instructions = derive(machine)
    lowered = lower_case(case, Planner(machine).plan(case.kernel).schedule, machine, instructions)
    arena = lowered.memory[: lowered.bases["tables"]]
    whole = Lowering(instructions, lowered.bases, {"activations": arena})
    assert machine.c is not None
    text = kernel_text(whole, [lowered.tiles], "k0", FUNCTION, "unit", machine.c.prefix)
    return EmittedKernel(machine, text, lowered)


def shim_of(machine: Machine, folder: Path, compiler: str) -> Path:
    """A folder with the headers and objects of the machine's functions for the host."""
    assert machine.c is not None
    place = folder / f"shim-{machine.name}-{machine.element}-{compiler}"
    if place.exists():
        return place
    place.mkdir()
    instructions = derive(machine)
    (place / f"{machine.c.prefix}.h").write_text(header_text(instructions))
    prefix = machine.c.prefix
    (place / "unit_network.h").write_text(
        f'#include "{prefix}.h"\nvoid {FUNCTION}(const struct {prefix}_memory *memory);\n'
    )
    for name, text in shim_texts(instructions).items():
        (place / name).write_text(text)
    for source in sorted(place.glob("*.c")):
        command = [compiler, *FLAGS, f"-I{place}", "-c", str(source)]
        subprocess.run([*command, "-o", str(source.with_suffix(".o"))], check=True)
    return place


__all__ = ["COMPILERS", "EmittedKernel", "emitted", "with_c"]
