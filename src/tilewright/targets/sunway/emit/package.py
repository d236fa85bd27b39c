"""Writing a package: the layers, main.c, the shim and the makefile.

    main.c                     allocation, parameters and input, computation, output
    files.h  save.h            what main.c does with files
    core_groups.h              and with threads for several core groups
    layers/LAYER.c  .h         the MPE's part of a layer, an ordinary function
    layers/layers.h            declares all of them, for main.c
    layers/LAYER_para.h        what the MPE tells the CPEs; seen by LAYER.c and LAYER_slave.c alone
    layers/LAYER_slave.c       the CPEs' part
    slave/, mpe/               what the layers on the CPEs, and those on the MPE, share
    shim/                      athread.h, slave.h, simd.h and dma.h for the host
    Makefile                   for sw5cc, and with the target ``shim`` for the host
    weights.bin, program.json

Kernels that the CPEs do not compute are the cpu target's C, which the MPE runs: they have LAYER.c
and LAYER.h alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from tilewright.codegen.c.parameters import Parameter, Place, place_text
from tilewright.codegen.c.prune import drop_unread, prune_folder
from tilewright.codegen.c.source import comment
from tilewright.codegen.host.calls import KernelCall
from tilewright.codegen.host.compiler import host_compiler
from tilewright.codegen.host.loops import copies_of
from tilewright.codegen.host.main import FILES, Main
from tilewright.codegen.host.ports import file_ports
from tilewright.codegen.host.steps import kernel_steps
from tilewright.codegen.program.bodies import Bases, bases_of_bodies, package_bytes
from tilewright.codegen.program.interface import (
    ALIGNMENT,
    MANIFEST,
    WEIGHTS_FILE,
    Compilation,
    CompiledKernel,
)
from tilewright.codegen.program.weights import write_weights
from tilewright.errors import Refusals, refuse
from tilewright.graph.arenas import Box
from tilewright.graph.dialect import network_of
from tilewright.graph.names import network_name
from tilewright.graph.placement import ACTIVATIONS, TEMPORARY, WEIGHTS
from tilewright.machine import Machine
from tilewright.memory.alignment import align_up
from tilewright.system.template import filled
from tilewright.targets.sunway.emit.charge import charge_texts
from tilewright.targets.sunway.emit.layer import TEMPLATES, LayerHead
from tilewright.targets.sunway.emit.main import Call, LoopCalls, layer_calls, layers_text, main_text
from tilewright.targets.sunway.emit.names import layer_names
from tilewright.targets.sunway.emit.nest import PartNest
from tilewright.targets.sunway.emit.slave import Layer, slave_text
from tilewright.targets.sunway.emit.winograd import header_text as winograd_text
from tilewright.targets.sunway.gemm.panel import headers as gemm_headers
from tilewright.targets.sunway.gemm.turns import headers as turns_headers
from tilewright.targets.sunway.machine import CPES
from tilewright.tile.dialect import ProgramOp, programs_of

SHIM_HEADERS = ("athread.h", "count.h", "dma.h", "internal.h", "shim.h", "simd.h", "slave.h")
SHIM_SOURCES = ("buses.c", "count.c", "dma.c", "memory.c", "play.c", "replay.c", "shim.c")
SHIM_FLAGS = ("-std=gnu99", "-fno-pie", "-fno-strict-aliasing", "-Ishim")
SHIM_LINK = ("-no-pie", "-pthread", "-Wl,--section-start=shim_ldm=0x70000000")
"""LDM lies apart from everything, where the pages of each CPE can be mapped in turn."""

SLAVE = ("cpe.h", "im2col.h", "ldm_slave.c", "mesh.h")


def write_package(compilation: Compilation, directory: Path) -> None:
    """Write all files of a package into a directory.

    Raises KernelError for a kernel that the CPEs cannot run, TilewrightError for what the MPE
    cannot.
    """
    network = network_of(compilation.network)
    name = network_name(network.symbol.data)
    layers = _Layers(compilation)
    calls, rows = layers.network(compilation, Bases())
    layers.refused.check()
    texts = layers.texts
    inputs, outputs = file_ports(network, "sunway-operand")
    main = Main((WEIGHTS_FILE,), inputs, outputs, layers.spaces, last="LAYERS")
    groups = core_groups(compilation.machine)
    texts["layers/layers.h"] = layers_text(calls)
    texts["main.c"] = main_text(name, calls, main, groups)
    texts["files.h"] = FILES
    names = [call.layer.name for call in layer_calls(calls)]
    slaves = [each for each in names if f"layers/{each}_slave.c" in texts]
    texts["Makefile"] = filled(
        TEMPLATES / "Makefile.in",
        name=name,
        layers=" \\\n    ".join(names),
        slaves=" \\\n    ".join(slaves),
        shim_flags=" ".join(SHIM_FLAGS),
        shim_link=" ".join(SHIM_LINK),
        threads=" -lpthread" if groups > 1 else "",
    )
    texts |= _support(compilation.machine, on_host=layers.on_mpe)
    drop_unread(texts, "slave")
    if "slave/scalars.h" in texts:
        prune_folder(texts, "slave", ["scalars.h"])
    if layers.on_mpe:
        prune_folder(texts, "mpe", tuple(host_compiler().headers))
    manifest = {
        "format": 1,
        "name": name,
        "machine": compilation.machine.to_json(),
        "weight_bytes": layers.spaces[WEIGHTS],
        "activation_bytes": package_bytes(compilation)[1],
        "inputs": to_builtins(inputs),
        "outputs": to_builtins(outputs),
        "layers": rows,
    }
    texts[MANIFEST] = json.dumps(manifest, indent=1) + "\n"
    for path, text in sorted(texts.items()):
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    write_weights(compilation, directory / WEIGHTS_FILE)


class _Layers:
    """The files and calls of a network's layers, and of those of its loops' bodies."""

    def __init__(self, compilation: Compilation) -> None:
        self.machine = compilation.machine
        self.texts: dict[str, str] = {}
        self.refused = Refusals()
        self.on_mpe = False
        """True if a layer runs on the MPE."""
        weights, activations = package_bytes(compilation)
        first = compilation.arenas.get(ACTIVATIONS, 0)
        if activations > first and TEMPORARY not in compilation.arenas:
            first = align_up(first, ALIGNMENT)  # The first body begins there.
        self.first = first
        """Bytes of the arena ``activations``; what lies after them is in ``temporary``."""
        self.spaces = {WEIGHTS: weights, ACTIVATIONS: first}
        if activations > first:
            self.spaces[TEMPORARY] = activations - first

    def pointer(self, place: Place) -> str:
        """C of a place of the package."""
        arena, offset = place
        if arena == WEIGHTS or offset < self.first:
            return place_text(arena, offset)
        return f"{TEMPORARY} + {offset - self.first}"

    def network(
        self, compilation: Compilation, bases: Bases, before: str = ""
    ) -> tuple[list[Call | LoopCalls], list[dict[str, Any]]]:
        """The calls of a network that has its arenas at ``bases``, and the manifest's rows; names
        begin with ``before``."""
        network = network_of(compilation.network)
        compiled = {kernel.kernel.symbol: kernel for kernel in compilation.kernels}
        bodies = bases_of_bodies(compilation, bases)
        kernels = tuple(k for symbol, k in compiled.items() if symbol not in bodies)
        hosted = {
            call.symbol: call
            for call in host_compiler().calls(replace(compilation, kernels=kernels))
        }
        layers: dict[str, tuple[LayerHead, Sequence[Place], int]] = {}
        for symbol, kernel in compiled.items():
            if symbol not in bodies:
                with self.refused.of(symbol):
                    layers[symbol] = self._layer(kernel, hosted.get(symbol), before)
        calls: list[Call | LoopCalls] = []
        rows: list[dict[str, Any]] = []
        for op in kernel_steps(network, "sunway-operation"):
            symbol = op.symbol.data
            kernel, box = compiled[symbol], Box.of(op.result)
            _, start = bases.place((ACTIVATIONS, box.offset))
            result = self.pointer((ACTIVATIONS, start)), box.span
            row: dict[str, Any] = {
                "symbol": before + symbol,
                "nodes": list(kernel.kernel.nodes),
                "on_host": kernel.on_host,
                "start": start,
                "bytes": box.span,
            }
            if symbol in bodies:
                loop, inner = compilation.loops[symbol], bodies[symbol]
                steps, body = self.network(loop.body, inner, f"{before}{symbol}_")
                copies = copies_of(op, loop.body, bases, inner, self.pointer)
                about = f"{comment(', '.join(kernel.kernel.nodes) or symbol)}: a loop"
                calls.append(
                    LoopCalls(before + symbol, about, loop.rounds, copies, tuple(steps), result)
                )
                rows.append(row | {"on_host": False, "rounds": loop.rounds, "layers": body})
                continue
            if symbol not in layers:
                continue  # It is refused.
            head, places, groups = layers[symbol]
            arguments = tuple(self.pointer(bases.place(place)) for place in places)
            calls.append(Call(head, arguments, result, groups))
            row["groups"] = groups
            if kernel.program is not None and kernel.schedule is not None:
                program_op = programs_of(kernel.program)[0]
                row["charges"] = charge_texts(program_op, compilation.machine)
            rows.append(row)
        return calls, rows

    def _layer(
        self, kernel: CompiledKernel, hosted: KernelCall | None, before: str
    ) -> tuple[LayerHead, Sequence[Place], int]:
        """Add the files of one layer. Returns its head, the places of its arguments, and its core
        groups."""
        symbol, nodes = before + kernel.kernel.symbol, kernel.kernel.nodes
        texts, cores = self.texts, self.machine.cores
        groups, grouped = 1, cores > CPES
        if hosted is None:
            if kernel.program is None:
                raise refuse("sunway-operation", "neither the CPEs nor the MPE compute it", symbol)
            program_op = programs_of(kernel.program)[0]
            groups = groups_of(PartNest(program_op), cores)
            head = LayerHead(symbol, nodes, tuple(_parameters(program_op)), grouped)
            layer = Layer(symbol, nodes, program_op, str(kernel.schedule), cores, grouped)
            texts[f"layers/{symbol}_slave.c"] = slave_text(layer)
            texts[f"layers/{symbol}_para.h"] = head.text("layer_para.h")
            texts[f"layers/{symbol}.c"] = head.text("layer.c")
            tensors = program_op.tensors
            places = [each.place(tensors[each.tensor]) for each in head.parameters]
        else:
            self.on_mpe = True
            head = LayerHead(symbol, nodes, hosted.source.parameters)
            texts[f"layers/{symbol}.c"] = (
                f"/* {head.about}: on the MPE. */\n#define LANES {host_compiler().lanes}\n"
                f'#include "../mpe/plain.h"\n#include "../mpe/pieces.h"\n'
                f'#include "{symbol}.h"\n\n{hosted.source.named(symbol)}'
            )
            places = [hosted.place(each) for each in hosted.source.parameters]
        texts[f"layers/{symbol}.h"] = head.text("layer.h")
        return head, places, groups


def core_groups(machine: Machine) -> int:
    """Core groups of a machine."""
    return ceil(machine.cores / CPES)


def groups_of(nest: PartNest, cores: int) -> int:
    """Core groups that have a part of a kernel, the first of all; one where it is not cut."""
    each = ceil(nest.parts / cores)
    return ceil(nest.parts / (each * CPES))


def _parameters(program: ProgramOp) -> list[Parameter]:
    """A pointer for each buffer, as the slave names them."""
    return [
        Parameter(b.tensor_op.symbol.data, name, written=b.tensor_op.role.data == "output")
        for b, name in layer_names(program).buffers.items()
        if b.tensor_op.role.data != "internal"
    ]


def _support(machine: Machine, *, on_host: bool) -> Mapping[str, str]:
    """The files that are the same in every package but for the machine's LDM."""
    kernel_headers = host_compiler().headers
    sunway = files("tilewright.targets.sunway")
    texts = {
        f"shim/{name}": (sunway / "shim" / name).read_text()
        for name in (*SHIM_HEADERS, *SHIM_SOURCES)
    }
    texts |= {f"slave/{name}": (sunway / "emit" / "slave" / name).read_text() for name in SLAVE}
    room = f"#define LDM_BYTES {machine.memory('ldm').room}\n"
    texts["slave/cpe.h"] = re.sub(r"#define LDM_BYTES .*\n", room, texts["slave/cpe.h"])
    headers = {**gemm_headers(), **turns_headers()}
    texts |= {f"slave/{name}": text for name, text in headers.items()}
    mpe = sunway / "emit" / "mpe"
    for name in ("save.h", *(["core_groups.h"] if core_groups(machine) > 1 else [])):
        texts[name] = (mpe / name).read_text()
    texts["slave/winograd.h"] = winograd_text()
    texts["slave/scalars.h"] = kernel_headers["scalars.h"]
    if on_host:
        texts |= {f"mpe/{name}": text for name, text in kernel_headers.items()}
        texts["mpe/plain.h"] = (mpe / "plain.h").read_text()
    return texts


def sources_of(layers: Sequence[str], slaves: Sequence[str]) -> list[str]:
    """The C files of a package for the host, the shim's included."""
    return [
        "main.c",
        *(f"layers/{name}.c" for name in layers),
        *(f"layers/{name}_slave.c" for name in slaves),
        "slave/ldm_slave.c",
        *(f"shim/{name}" for name in SHIM_SOURCES),
    ]
