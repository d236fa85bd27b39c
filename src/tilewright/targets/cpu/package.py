"""Writing a package: which functions there are, which step calls which, and all files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, count
from pathlib import Path

from tilewright.codegen.c.prune import pruned
from tilewright.codegen.host.calls import KernelCall
from tilewright.codegen.host.loops import LoopCall
from tilewright.codegen.host.ports import Port, distinct_ports
from tilewright.codegen.program.bodies import Bases, package_bytes
from tilewright.codegen.program.interface import MANIFEST, WEIGHTS_FILE, Compilation
from tilewright.codegen.program.weights import array_text, checksum_of, write_weights
from tilewright.graph.dialect import network_of
from tilewright.graph.free_axes import Sizes
from tilewright.graph.names import identifier, network_name
from tilewright.machine import Machine
from tilewright.system.typed_json import to_json
from tilewright.targets.cpu.headers import HEADERS, header
from tilewright.targets.cpu.manifest import CpuManifest, StepRow
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.processors import Processor
from tilewright.targets.cpu.steps import Step, StepWriter, scratch_bytes
from tilewright.targets.cpu.texts import (
    build_values,
    kernel_file_text,
    main_values,
    network_values,
    text,
    weight_values,
)


def names_of_sizes(sizes: Collection[str]) -> dict[str, str]:
    """C names of a run's sizes, which differ from one another and from all other names."""
    names: dict[str, str] = {}
    for size in sizes:
        base = identifier(f"size {size}")
        taken = set(names.values())
        numbered = (f"{base}_{number}" for number in count(2))
        names[size] = next(name for name in chain([base], numbered) if name not in taken)
    return names


def write_package(
    compilation: Compilation,
    directory: Path,
    calls: Sequence[KernelCall | LoopCall],
    lanes: int,
    *,
    processor: Processor,
    weights: bool = True,
    sizes: Sizes | None = None,
) -> list[Path]:
    """Write all files for calls of a compilation's kernels, in order; returns them, sorted.

    Without ``weights`` there is neither weights.bin nor a program, only what a library is built
    from: who runs the steps has the arena.
    """
    network = network_of(compilation.network)
    prefix = network_name(network.symbol.data)
    ended = ({}, {}) if sizes is None else (sizes.inputs, sizes.outputs)
    taken, given = (
        [Port.of(name, value, ends.get(name)) for name, value in side]
        for side, ends in zip((network.inputs, network.outputs), ended, strict=True)
    )
    names = names_of_sizes(compilation.free)
    inputs, outputs = distinct_ports(taken, given)
    form = compilation.form
    writer = StepWriter(prefix, form)
    steps = writer.steps(compilation, calls, Bases())
    functions = writer.functions
    weights_file = directory / WEIGHTS_FILE
    if weights:
        write_weights(compilation, weights_file)
    identity = checksum_of(weights_file) if weights else None
    memory = package_bytes(compilation)
    values = network_values(prefix, inputs, outputs, steps, form, names, compilation.lists)
    values["loops"] = "\n".join(writer.loops)
    values |= weight_values(form, *memory, identity)
    run = text("network.c", values)
    support = pruned(
        {name: header(name) for name in HEADERS},
        [run, *(source.text for _, source, _ in functions)],
    )
    values |= {
        "lanes": lanes,
        "includes": support_text("\n".join(support.includes["pieces.h"]), prefix),
        "prototypes": "\n".join(f"{source.declared(name)};" for name, source, _ in functions),
    }
    ports = taken, given
    files: dict[str, str | bytes] = {
        f"include/{prefix}.h": text("network.h", values),
        f"src/{prefix}.c": run,
        f"src/{prefix}_kernels.h": text("kernels.h", values),
        **{
            f"src/{prefix}_{name}": support_text(helpers, prefix)
            for name, helpers in support.texts.items()
        },
        MANIFEST: _manifest(prefix, ports, steps, compilation, memory, lanes, processor),
    }
    for name, source, used in functions:
        files[f"src/{name}.c"] = kernel_file_text(prefix, name, source, used)
    if weights and form.weights == "array":
        files[f"src/{prefix}_weights.c"] = array_text(prefix, weights_file)
        weights_file.unlink()
    if weights:
        sources = sorted(name for name in files if name.startswith("src/") and name.endswith(".c"))
        values |= build_values(prefix, processor, sources, form)
        files["Makefile"] = text("Makefile", values)
        files["CMakeLists.txt"] = text("CMakeLists.txt", values)
    if weights and not form.bare:
        values |= main_values(prefix.upper(), inputs, outputs, form, names)
        files[f"include/{prefix}.hpp"] = text("network.hpp", values)
        files["main.c"] = text("main.c", values)
        files[f"{prefix}.pc.in"] = text("network.pc.in", values)
    paths: list[Path] = []
    for name, content in sorted(files.items()):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        paths.append(path)
    if weights_file.exists():
        paths.append(weights_file)
    return sorted(paths)


def support_text(helpers: str, prefix: str) -> str:
    """A header of helpers under names of the package's own.

    Two packages' sources can lie in one folder, also of different versions of Tilewright.
    """
    helpers = helpers.replace("TILEWRIGHT_", f"{prefix.upper()}_")
    return helpers.replace('#include "', f'#include "{prefix}_')


def _takes_tiles(machine: Machine, steps: Sequence[Step]) -> bool:
    """Return True if the schedule of some kernel multiplies on matrix tiles."""
    named = {primitive.name for primitive in machine.primitives if own_of(primitive).block_cycles}
    schedules = [kernel.schedule for step in steps for kernel in step.kernels]
    return any(schedule is not None and schedule.primitive in named for schedule in schedules)


def _manifest(
    prefix: str,
    ports: tuple[Sequence[Port], Sequence[Port]],
    steps: Sequence[Step],
    compilation: Compilation,
    memory: tuple[int, int],
    lanes: int,
    processor: Processor,
) -> str:
    kernels = [step.kernel.kernel for step in steps]
    manifest = CpuManifest(
        format=1,
        prefix=prefix,
        lanes=lanes,
        processor=processor.name,
        tiles=processor.block_cycles > 0 and _takes_tiles(compilation.machine, steps),
        weights=compilation.form.weights,
        bare=compilation.form.bare,
        weight_bytes=memory[0],
        workspace_bytes=memory[1],
        scratch_bytes=scratch_bytes(steps),
        inputs=tuple(ports[0]),
        outputs=tuple(ports[1]),
        sizes=tuple(compilation.free),
        steps=tuple(StepRow(kernel.symbol, kernel.nodes) for kernel in kernels),
    )
    return to_json(manifest, indent=1) + "\n"
