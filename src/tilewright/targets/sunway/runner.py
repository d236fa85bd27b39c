"""Runs a package on the host: its C with the shim, as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.c import libraries
from tilewright.codegen.c.compiler import find_compiler, run_compiler
from tilewright.codegen.host.library import arena, read_weights
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.interface import (
    WEIGHTS_FILE,
    KernelProfile,
    Profile,
    Runner,
    RunResult,
    Watch,
)
from tilewright.errors import refuse
from tilewright.graph.operations.loops import MOST_ROUNDS
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.numerics.element_types import dtype_named
from tilewright.planning.own import start_cycles
from tilewright.simulate.commands import timed_table
from tilewright.simulate.timing import Spans
from tilewright.simulate.trace import write_trace
from tilewright.system.temporary import temporary_folder
from tilewright.system.typed_json import from_value
from tilewright.targets.sunway.chip import GROUPS
from tilewright.targets.sunway.emit.charge import counting
from tilewright.targets.sunway.emit.package import (
    MANIFEST,
    SHIM_FLAGS,
    SHIM_LINK,
    core_groups,
    sources_of,
)
from tilewright.targets.sunway.mesh import MESH

OPTIMISED = ("-O2", "-Wall", "-Wextra")
"""Compiler flags of programs where no others are asked for."""

TIMEOUT_SECONDS = 3600


class SunwayRunner(Runner):
    """A package and the program that the host's compiler makes of it."""

    exact = False  # floats, whose sums have an order of their own
    spoils = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = read_manifest(directory)
        self._inputs, self._outputs = ports_of(self.manifest)
        self.inputs = tuple(port.info for port in self._inputs)
        self.outputs = tuple(port.info for port in self._outputs)
        self.layers: Sequence[Mapping[str, Any]] = self.manifest["layers"]
        self.order = ""
        """A seed for the order in which CPEs run; "" is that of their numbers."""
        self.program: Path | None = None
        """The program that the compiler made, once it is there."""
        self.counting: Path | None = None
        """The program with the cycles of each tile's code in it."""

    def prepare(self) -> None:
        """Build the program from its C, if that is not done yet."""
        if self.program is None:
            self.program = build(self.directory, self.manifest)

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        trace: Path | None = None,
        check_races: bool = False,
        watch: Watch | None = None,
        profile: bool = False,
    ) -> RunResult:
        """Run once. The shim refuses (``sunway-shim``) every misuse of DMA, races among them.

        A ``profile`` has the cycles that the shim counts (shim/count.c), for each layer: a
        ``trace`` has an event for each.
        """
        del check_races
        self.check_inputs(inputs)
        self.prepare()
        with temporary_folder() as folder:
            names = [folder / f"{n}.in" for n in range(len(self._inputs))]
            for port, path in zip(self._inputs, names, strict=True):
                path.write_bytes(np.ascontiguousarray(inputs[port.name]).tobytes())
            results = [folder / f"{n}.out" for n in range(len(self._outputs))]
            layers = [folder / "layers"] if watch is not None else []
            for path in layers:
                path.mkdir()
            words = [self.directory / WEIGHTS_FILE, *names, *results, *layers]
            counted = profile or trace is not None
            counts = self._counted(words, folder) if counted else ""
            if not counted:
                self._execute(self.program, words)
            if watch is not None:
                self._show(folder / "layers", inputs, watch)
            outputs = {
                port.name: np.fromfile(path, dtype_named(port.dtype)).reshape(port.shape)
                for port, path in zip(self._outputs, results, strict=True)
            }
        if trace is not None:
            self._write_trace(trace, self.profile(counts))
        if counted:
            return RunResult(outputs, lambda: self.profile(counts))
        given = {name: np.array(array) for name, array in inputs.items()}
        return RunResult(outputs, lambda: self.run(given, profile=True).profile)

    def _counted(self, words: Sequence[Path], folder: Path) -> str:
        """Run the program that counts; what it wrote."""
        if self.counting is None:
            self.counting = build(self.directory, self.manifest, counts=True)
        machine = folder / "machine"
        machine.write_text(figures(Machine.from_json(self.manifest["machine"])))
        where = {"SHIM_COUNT": str(folder / "counts"), "SHIM_MACHINE": str(machine)}
        self._execute(self.counting, words, where)
        return (folder / "counts").read_text()

    def _execute(
        self, program: Path | None, words: Sequence[Path], more: Mapping[str, str] | None = None
    ) -> None:
        environment = os.environ | ({"SHIM_ORDER": self.order} if self.order else {})
        if self.seed:
            # A number, so that maxima and comparisons, which pass over NaN, depend on it, too.
            environment |= {"SHIM_POISON": f"{0x4B10F00D + self.seed:x}"}
        environment |= more or {}
        try:
            ran = subprocess.run(
                [str(program), *map(str, words)],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=TIMEOUT_SECONDS,
                env=environment,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise refuse("sunway-shim", f"the program cannot run: {error}") from error
        if ran.returncode:
            said = "\n".join(ran.stderr.splitlines()[:12]) or f"status {ran.returncode}"
            raise refuse("sunway-shim", said, str(self.manifest["name"]))

    def _show(self, folder: Path, inputs: Mapping[str, Array], watch: Watch) -> None:
        """Give the arenas as they were after each layer."""
        weights = read_weights(self.directory / WEIGHTS_FILE, self.manifest["weight_bytes"])
        arenas = {WEIGHTS: weights, ACTIVATIONS: arena(self.manifest["activation_bytes"])}
        for port in self._inputs:
            view, layout = port.box(arenas)
            view[...] = layout.pack(np.asarray(inputs[port.name]))
        for row in self.layers:
            data = np.fromfile(folder / f"{row['symbol']}.bin", np.uint8)
            arenas[ACTIVATIONS][row["start"] : row["start"] + row["bytes"]] = data
            watch(str(row["symbol"]), arenas)

    def profile(self, counts: str) -> Profile:
        """Return the profile in the shim's counts, a line per kernel and core group (shim/count.c).

        A kernel takes what its slowest core group does.
        """
        memory = self.manifest["weight_bytes"] + self.manifest["activation_bytes"]
        lines = [[int(word) for word in line.split()] for line in counts.splitlines()]
        groups = [iter([row for row in lines if row[-1] == g]) for g in range(GROUPS)]
        kernels: list[KernelProfile] = []
        begin = 0
        moved = 0
        for row in self.layers:
            symbol, nodes = str(row["symbol"]), tuple(map(str, row["nodes"]))
            if row["on_host"]:
                kernels.append(KernelProfile(symbol, nodes, on_host=True))
                continue
            cycles, bytes_moved = _taken(row, groups)
            kernels.append(
                KernelProfile(
                    *(symbol, nodes, cycles, begin, begin + cycles), dram_bytes=bytes_moved
                )
            )
            begin, moved = begin + cycles, moved + bytes_moved
        return Profile(
            tuple(kernels),
            cycles=begin,
            clock_hz=float(self.manifest["machine"]["clock_hz"]),
            dram_bytes=moved,
            peak_memory_bytes=memory,
        )

    def _write_trace(self, path: Path, profile: Profile) -> None:
        """The layers for Perfetto."""
        layers = [kernel for kernel in profile.kernels if not kernel.on_host]
        nothing = np.zeros(0)
        ends = np.array([kernel.end or 0 for kernel in layers], np.float64)
        moved = np.array([kernel.dram_bytes or 0 for kernel in layers], np.int64)
        write_trace(
            path,
            Spans(nothing, nothing, nothing, ends, moved),
            timed_table(0),
            Machine.from_json(self.manifest["machine"]),
            kernels=[kernel.symbol for kernel in layers],
            nodes=[kernel.nodes for kernel in layers],
        )


def _taken(row: Mapping[str, Any], groups: Sequence[Iterator[list[int]]]) -> tuple[int, int]:
    """Cycles and bytes of a layer, or of all rounds of a loop, by the next lines of each core
    group; a layer takes what its slowest core group does."""
    if row["on_host"]:
        return 0, 0
    if "layers" in row:
        taken = [
            _taken(inner, groups) for _ in range(int(row["rounds"])) for inner in row["layers"]
        ]
        return sum(cycles for cycles, _ in taken), sum(moved for _, moved in taken)
    parts = [next(groups[g]) for g in range(int(row.get("groups", 1)))]
    return max(part[0] for part in parts), sum(part[1] + part[2] for part in parts)


def every_row(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows of a manifest's layers and loops, and those of the loops' bodies."""
    for row in rows:
        yield row
        yield from every_row(row.get("layers", ()))


def layers_of(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows of a manifest's layers, those of loops' bodies included, without the loops."""
    return (row for row in every_row(rows) if "layers" not in row)


def figures(machine: Machine) -> str:
    """Return the shim's figures for counting: SHIM_MACHINE's file, with one core group's rates."""
    groups = core_groups(machine)
    main = machine.memory(machine.main).bytes_per_cycle
    lines = [f"memory {(main or 1e9) / groups!r}", f"issue {machine.issue_cycles}"]
    lines.append(f"spawn {start_cycles(machine)}")
    lines.append(f"bus {MESH.vector_cycles!r} {MESH.turn_cycles!r}")
    for move in machine.moves:
        way = "put" if move.target == machine.main else "get"
        points = " ".join(f"{size} {part!r}" for size, part in move.efficiency)
        rate = move.bytes_per_cycle / groups
        known = f"{rate!r} {move.latency!r} {move.in_flight} {len(move.efficiency)} {points}"
        lines.append(f"{way} {known}")
    return "\n".join(lines) + "\n"


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest; refuses (``package-invalid``) a damaged one."""
    path = directory / MANIFEST
    try:
        content: Any = json.loads(path.read_text())
        sound = content["format"] == 1 and str(content["name"]).isidentifier()
        for key in ("weight_bytes", "activation_bytes"):
            sound = sound and 0 <= int(content[key]) <= 1 << 36
        for row in every_row(content["layers"]):
            sound = sound and 1 <= int(row.get("rounds", 1)) <= MOST_ROUNDS
            sound = sound and 1 <= int(row.get("groups", 1)) <= GROUPS
            sound = sound and str(row["symbol"]).isidentifier()
            end = int(row["start"]) + int(row["bytes"])
            sound = sound and 0 <= int(row["start"]) <= end <= content["activation_bytes"]
            sound = sound and isinstance(row["on_host"], bool) and isinstance(row["nodes"], list)
        ports_of(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise refuse("package-invalid", f"the manifest is damaged: {error}", str(path)) from error
    if not sound:
        raise refuse("package-invalid", "the manifest is damaged", str(path))
    return content


def ports_of(manifest: Mapping[str, Any]) -> tuple[list[Port], list[Port]]:
    """The inputs and outputs of a manifest; raises KeyError or ``JsonError``."""
    return from_value(list[Port], manifest["inputs"]), from_value(list[Port], manifest["outputs"])


def build(
    directory: Path,
    manifest: Mapping[str, Any],
    flags: Sequence[str] | None = None,
    *,
    counts: bool = False,
) -> Path:
    """The program of a package with the shim: built once, and kept in the user's cache.

    One that ``counts`` charges the shim for every tile before it computes it.
    """
    flags = OPTIMISED if flags is None else flags
    rows = list(layers_of(manifest["layers"]))
    layers = [str(row["symbol"]) for row in rows]
    slaves = [str(row["symbol"]) for row in rows if not row["on_host"]]
    sources = sources_of(layers, slaves)
    headers = sorted(p.relative_to(directory) for p in directory.rglob("*.h"))
    digest = sha256(" ".join(flags).encode())
    for path in (*sources, *headers):
        try:
            text = (directory / path).read_bytes()
        except OSError as error:
            raise refuse("package-invalid", f"{path} is missing", str(directory)) from error
        digest.update(f"{path} {len(text)}\n".encode() + text)
    charges = {
        f"layers/{row['symbol']}_slave.c": [str(text) for text in row.get("charges", ())]
        for row in rows
        if counts and not row["on_host"]
    }
    digest.update(json.dumps(charges).encode())

    def make(target: Path) -> None:
        compiler = find_compiler()
        with temporary_folder() as scratch:
            objects = [scratch / f"{number}.o" for number in range(len(sources))]

            def compile_one(pair: tuple[str, Path]) -> None:
                source, built = pair
                if source in charges:
                    text = counting((directory / source).read_text(), charges[source])
                    copied = built.with_suffix(".c")
                    copied.write_text(f'#include <math.h>\n#line 1 "{source}"\n{text}')
                    source = str(copied)
                command = [*compiler, *SHIM_FLAGS, *flags, "-Ilayers", "-c", source]
                command += ["-o", str(built)]
                run_compiler(command, directory)

            with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
                list(pool.map(compile_one, zip(sources, objects, strict=True)))
            linking = [flag for flag in flags if flag.startswith(("-f", "-O", "-m"))]
            program = scratch / "program"
            run_compiler(
                [*compiler, *linking, *SHIM_LINK, *map(str, objects), "-o", str(program), "-lm"]
            )
            target.write_bytes(program.read_bytes())
            target.chmod(0o755)

    return libraries.obtain(f"{manifest['name']}-shim", digest.hexdigest(), make, native=False)
