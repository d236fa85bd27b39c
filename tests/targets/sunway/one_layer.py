"""One layer's package, built with a changed source, run with a trace, and held to its program."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.targets.sunway.expected_transfers import Runs, Walk, traced

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.runtime import Executable
from tilewright.targets.sunway.emit.package import SHIM_FLAGS, SHIM_LINK, sources_of
from tilewright.tile.dialect import ProgramOp, programs_of

FLAGS = ("-O0", "-w")


@dataclass(frozen=True)
class Ran:
    """A run of the shim: its status, what it said, and its trace."""

    status: int
    said: str
    trace: tuple[str, ...]
    ldm: int = 0
    """Bytes of LDM in front of the tiles."""


@dataclass
class Package:
    """A compiled network, its tile programs, and objects of what no test changes."""

    executable: Executable
    program: Path
    programs: Mapping[str, ProgramOp]
    cores: int
    objects: Path

    @classmethod
    def of(
        cls, model: Path, folder: Path, values: Mapping[str, Any], planner: str = "model"
    ) -> Package:
        """Compile a model."""
        executable = tilewright.compile(
            model, "sunway", values=values, directory=folder / "p", planner=planner
        )
        target, machine = resolve("sunway", values=values)
        with target.planner(planner, machine) as asked:
            work = run_pipeline(model, target, machine, ask=asked)
        programs = {
            kernel.kernel.symbol: programs_of(kernel.program)[0]
            for kernel in work.kernels
            if kernel.program is not None
        }
        objects = folder / "objects"
        objects.mkdir()
        return cls(executable, folder / "p" / "program", programs, machine.cores, objects)

    @property
    def sources(self) -> list[str]:
        """All C files."""
        return sources_of(list(self.programs), list(self.programs))

    def compile(self, source: str, text: str | None, target: Path) -> str:
        """Compile one file, or what it would be with another text; what the compiler says."""
        place = self.program / source
        command = ["cc", *SHIM_FLAGS, *FLAGS, "-c", "-o", str(target)]
        if text is not None:
            place = place.with_name("changed.c")
            place.write_text(text)
        ran = subprocess.run(
            [*command, str(place.relative_to(self.program))],
            cwd=self.program,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.stderr if ran.returncode else ""

    def run(self, folder: Path, changed: str = "", text: str = "", fifo: int = 4) -> Ran:
        """Build with one file changed, and run with so many registers in the buses' buffers."""
        built: list[str] = []
        for number, source in enumerate(self.sources):
            kept = self.objects / f"{number}.o"
            if source == changed:
                kept = folder / "changed.o"
                if said := self.compile(source, text, kept):
                    return Ran(1, said, ())
            elif not kept.exists():
                assert self.compile(source, None, kept) == ""
            built.append(str(kept))
        binary = folder / "program"
        subprocess.run(["cc", *SHIM_LINK, *built, "-o", str(binary), "-lm"], check=True)
        (info,) = self.executable.inputs
        size = 4
        for extent in info.shape:
            size *= int(extent)
        (folder / "x").write_bytes(os.urandom(0) + bytes(range(256)) * (size // 256 + 1))
        with (folder / "x").open("r+b") as file:
            file.truncate(size)
        words = [binary, self.program / "weights.bin", folder / "x", folder / "y"]
        ran = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ | {"SHIM_TRACE": str(folder / "trace"), "SHIM_FIFO": str(fifo)},
        )
        trace = folder / "trace"
        lines = tuple(trace.read_text().splitlines()) if trace.exists() else ()
        symbols = subprocess.run(["nm", binary], capture_output=True, text=True, check=True).stdout
        places = {
            words[2]: int(words[0], 16)
            for words in map(str.split, symbols.splitlines())
            if len(words) == 3
        }
        return Ran(ran.returncode, ran.stderr, lines, places["ldm"] - places["__start_shim_ldm"])

    def differences(self, symbol: str, ran: Ran, text: str) -> list[str]:
        """Where a layer's transfers are not those of its program: file:line and CPE, and why."""
        spawn = list(self.programs).index(symbol) + 1
        main = (self.program / "main.c").read_text()
        (activations,) = re.findall(r"activations = memory\((\d+)\)", main)
        seen = traced(ran.trace, spawn, ran.ldm, int(activations))
        program = self.programs[symbol]
        functions = function_of_lines(text)
        tensors = dict(re.findall(r"^enum {(\w+)_at = .*/\* (.*) \*/$", text, re.MULTILINE))
        found: list[str] = []
        for cpe in range(self.cores):
            walk = Walk(program, cpe, self.cores)
            wanted = {key: (runs, walk.tiles.get(key, [])) for key, runs in walk.run().items()}
            own: dict[tuple[str, str], tuple[Runs, Runs]] = {}
            places: dict[tuple[str, str], str] = {}
            for (number, file, line), runs in seen.items():
                if number == cpe:
                    kind, _, name = functions[int(line)].partition("_")
                    key = (kind, tensors[name])
                    own[key] = runs
                    places[key] = f"{file}:{line}"
            for key in {**wanted, **own}:
                if own.get(key, ([], [])) != wanted.get(key, ([], [])):
                    found.append(f"{places.get(key, symbol)}: CPE {cpe}: {' '.join(key)}")
        return found


def function_of_lines(text: str) -> dict[int, str]:
    """The function in which each line of C stands."""
    name, found = "", dict[int, str]()
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"(?:static )?\w[\w ]*[ *](\w+)\(", line):
            name = match.group(1)
        found[number] = name
    return found
