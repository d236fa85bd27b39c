"""Runs a package on the host: its C with the shim, as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.c import libraries
from tilewright.codegen.c.compiler import compiler_version, find_compiler, run_compiler
from tilewright.errors import refuse
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir.types import Array
from tilewright.targets.base import KernelProfile, Profile, Runner, RunResult, Watch
from tilewright.targets.cpu.package import WEIGHTS_FILE
from tilewright.targets.cpu.ports import Port
from tilewright.targets.cpu.runner import arena, read_weights
from tilewright.targets.sunway.emit.makefile import SHIM_FLAGS, SHIM_LINK
from tilewright.targets.sunway.emit.package import MANIFEST, sources_of

OPTIMISED = ("-O2", "-Wall", "-Wextra")

TIMEOUT_SECONDS = 3600


class SunwayRunner(Runner):
    """A package and the program that the host's compiler makes of it."""

    exact = False  # floats, whose sums have an order of their own

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = read_manifest(directory)
        self._inputs = [Port.of_json(row) for row in self.manifest["inputs"]]
        self._outputs = [Port.of_json(row) for row in self.manifest["outputs"]]
        self.inputs = tuple(port.info for port in self._inputs)
        self.outputs = tuple(port.info for port in self._outputs)
        self.layers: Sequence[Mapping[str, Any]] = self.manifest["layers"]
        self.order = ""
        """A seed for the order in which CPEs run; "" is that of their numbers."""
        self.program: Path | None = None
        """What the compiler made of it, once it is there."""

    def prepare(self) -> None:
        """Build the program."""
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
        """Run once. The shim refuses (``sunway-shim``) every misuse of DMA, races among them."""
        del check_races, profile
        self.check_inputs(inputs)
        self.prepare()
        if trace is not None:
            raise refuse("profile-missing", "the shim leaves no timeline", "--trace")
        with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
            folder = Path(scratch)
            names = [folder / f"{n}.in" for n in range(len(self._inputs))]
            for port, path in zip(self._inputs, names, strict=True):
                path.write_bytes(np.ascontiguousarray(inputs[port.name]).tobytes())
            results = [folder / f"{n}.out" for n in range(len(self._outputs))]
            layers = [folder / "layers"] if watch is not None else []
            for path in layers:
                path.mkdir()
            self._execute([self.directory / WEIGHTS_FILE, *names, *results, *layers])
            if watch is not None:
                self._show(folder / "layers", inputs, watch)
            outputs = {
                port.name: np.fromfile(path, np.dtype(port.dtype)).reshape(port.shape)
                for port, path in zip(self._outputs, results, strict=True)
            }
        return RunResult(outputs, self.profile)

    def _execute(self, words: Sequence[Path]) -> None:
        environment = os.environ | ({"SHIM_ORDER": self.order} if self.order else {})
        try:
            ran = subprocess.run(
                [str(self.program), *map(str, words)],
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
        """Give the arenas as they were behind each layer."""
        weights = read_weights(self.directory / WEIGHTS_FILE, self.manifest["weight_bytes"])
        arenas = {WEIGHTS: weights, ACTIVATIONS: arena(self.manifest["activation_bytes"])}
        for port in self._inputs:
            view, layout = port.box(arenas)
            view[...] = layout.pack(np.asarray(inputs[port.name]))
        for row in self.layers:
            data = np.fromfile(folder / f"{row['symbol']}.bin", np.uint8)
            arenas[ACTIVATIONS][row["start"] : row["start"] + row["bytes"]] = data
            watch(str(row["symbol"]), arenas)

    def profile(self) -> Profile:
        """No times: the host's say nothing of the machine's, and reports have what is predicted."""
        memory = self.manifest["weight_bytes"] + self.manifest["activation_bytes"]
        kernels = tuple(
            KernelProfile(str(row["symbol"]), tuple(map(str, row["nodes"])), on_host=row["on_host"])
            for row in self.layers
        )
        return Profile(kernels, peak_memory_bytes=memory)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest; refuses (``package-invalid``) a damaged one."""
    path = directory / MANIFEST
    try:
        content: Any = json.loads(path.read_text())
        sound = content["format"] == 1 and str(content["name"]).isidentifier()
        for key in ("weight_bytes", "activation_bytes"):
            sound = sound and 0 <= int(content[key]) <= 1 << 36
        for row in content["layers"]:
            sound = sound and str(row["symbol"]).isidentifier()
            end = int(row["start"]) + int(row["bytes"])
            sound = sound and 0 <= int(row["start"]) <= end <= content["activation_bytes"]
            sound = sound and isinstance(row["on_host"], bool)
        for row in (*content["inputs"], *content["outputs"]):
            Port.of_json(row)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise refuse("package-invalid", f"the manifest is damaged: {error}", str(path)) from error
    if not sound:
        raise refuse("package-invalid", "the manifest is damaged", str(path))
    return content


def build(directory: Path, manifest: Mapping[str, Any], flags: Sequence[str] = OPTIMISED) -> Path:
    """The program of a package with the shim: built once, and kept in the user's cache."""
    layers = [str(row["symbol"]) for row in manifest["layers"]]
    slaves = [str(row["symbol"]) for row in manifest["layers"] if not row["on_host"]]
    sources = sources_of(layers, slaves)
    headers = sorted(p.relative_to(directory) for p in directory.glob("*/*.h"))
    digest = sha256(" ".join([*flags, compiler_version()]).encode())
    for path in (*sources, *headers):
        try:
            text = (directory / path).read_bytes()
        except OSError as error:
            raise refuse("package-invalid", f"{path} is missing", str(directory)) from error
        digest.update(f"{path} {len(text)}\n".encode() + text)

    def make(target: Path) -> None:
        compiler = find_compiler()
        with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
            objects = [Path(scratch) / f"{number}.o" for number in range(len(sources))]

            def compile_one(pair: tuple[str, Path]) -> None:
                source, built = pair
                command = [*compiler, *SHIM_FLAGS, *flags, "-c", source, "-o", str(built)]
                run_compiler(command, directory)

            with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
                list(pool.map(compile_one, zip(sources, objects, strict=True)))
            linking = [flag for flag in flags if flag.startswith(("-f", "-O", "-m"))]
            made = Path(scratch) / "program"
            run_compiler(
                [*compiler, *linking, *SHIM_LINK, *map(str, objects), "-o", str(made), "-lm"]
            )
            target.write_bytes(made.read_bytes())
            target.chmod(0o755)

    return libraries.obtain(f"{manifest['name']}-shim-{digest.hexdigest()[:32]}", make)
