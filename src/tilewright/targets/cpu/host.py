"""The host's share of an accelerator's package: kernels in C, run on the accelerator's memory.

An accelerator target writes its host kernels with ``CpuHost.emit`` and gets them back, by symbol,
from ``CpuHost.load``; each runs on the arenas in which all of the package's tensors lie, in
whatever layout the accelerator keeps them. The C uses short vectors, so the same bytes build on any
processor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.c.compiler import FLAGS
from tilewright.codegen.host.calls import KernelCall
from tilewright.codegen.host.compiler import Refused
from tilewright.codegen.host.library import load_library, opened
from tilewright.codegen.program.interface import Compilation, CompiledKernel, HostStep
from tilewright.errors import TilewrightError, refuse
from tilewright.graph.arenas import Arenas
from tilewright.graph.dialect import network_of
from tilewright.graph.kernels import operand_values
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, Placement, placement_of
from tilewright.graph.values import value_names
from tilewright.ir.passes import CompilerContext
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.domain import Kernel
from tilewright.targets.cpu.headers import KERNEL_HEADERS, header
from tilewright.targets.cpu.machine import lanes_of, machine
from tilewright.targets.cpu.manifest import read_manifest
from tilewright.targets.cpu.package import write_package
from tilewright.targets.cpu.processors import PROCESSORS, this_processor
from tilewright.targets.cpu.walk import call_of
from tilewright.tile.build import build
from tilewright.tile.passes.boundary import Boundary

PORTABLE = replace(PROCESSORS["portable"], cores=1)
"""Vectors of 16 bytes, which every processor has; steps on the host run on one thread."""


class CpuHost:
    """The cpu target's C as the host's part of an accelerator's package (``HostCompiler``)."""

    @property
    def lanes(self) -> int:
        """The number of float32 lanes of the vectors that calls use."""
        return PORTABLE.lanes

    @property
    def headers(self) -> Mapping[str, str]:
        """The texts of the kernels' headers by file name."""
        return {name: header(name) for name in KERNEL_HEADERS}

    def calls(
        self, compilation: Compilation, *, refused: Refused | None = None
    ) -> list[KernelCall]:
        """The kernels on the host, in order, planned and written for any processor.

        Kernels that differ in names and in where their operands lie alone share one program and its
        C. ``refused`` is told the symbol of a kernel that cannot be, which is left out; without it,
        raises TilewrightError.
        """
        network = network_of(compilation.network)
        names = value_names(compilation.network)
        operations = {op.symbol.data: op for op in network.kernels}
        writer = _Writer(compilation, machine(PORTABLE))
        calls: list[KernelCall] = []
        for compiled in compilation.kernels:
            if not compiled.on_host:
                continue
            kernel = compiled.kernel
            places = {
                name: placement_of(value)
                for name, value in operand_values(operations[kernel.symbol], names).items()
            }
            try:
                calls.append(writer.call(kernel, places))
            except TilewrightError:
                if refused is None:
                    raise
                refused(kernel.symbol)
        return calls

    def emit(
        self, compilation: Compilation, directory: Path, *, refused: Refused | None = None
    ) -> list[Path]:
        """Write the kernels on the host of a compilation below ``directory/host``; [] if none."""
        calls = self.calls(compilation, refused=refused)
        if not calls:
            return []
        host = directory / "host"
        host.mkdir(exist_ok=True)
        return write_package(
            compilation, host, calls, PORTABLE.lanes, processor=PORTABLE, weights=False
        )

    def load(self, directory: Path) -> dict[str, HostStep]:
        """Return the steps that ``emit`` wrote, ready to run, by the kernels' symbols; {} if none.

        Builds the C on first use. The arenas given to a step are C-contiguous bytes.
        """
        program = directory / "host"
        if not program.exists():
            return {}
        manifest = read_manifest(program)
        prefix = manifest.prefix
        name = f"{prefix}_step"
        flags = (*FLAGS, *this_processor().flags)
        library = opened(load_library(program, prefix, flags), name)
        function: Callable[..., None] = getattr(library, name)
        sizes = {WEIGHTS: manifest.weight_bytes, ACTIVATIONS: manifest.workspace_bytes}
        return {
            step.symbol: _step(function, number, sizes)
            for number, step in enumerate(manifest.steps)
        }


class _Writer:
    """Plans and writes kernels of a compilation, those alike once."""

    def __init__(self, compilation: Compilation, host: Machine) -> None:
        self.context = CompilerContext(host, compilation.weights)
        self.host = host
        self.lanes = lanes_of(host)
        self.planner = Planner(self.host)
        self.written: dict[_Form, tuple[KernelCall, dict[str, str]] | TilewrightError] = {}
        """By form: the first kernel's call, and the names of its operands in the form."""

    def call(self, kernel: Kernel, places: Mapping[str, Placement]) -> KernelCall:
        """The call of a kernel whose operands lie at places; raises TilewrightError."""
        unnamed, names = canonical(kernel, meaning=True)
        kinds = tuple(
            (place.arena, tuple(place.strides)) if (place := places.get(name)) else ("", ())
            for name in names
        )
        form = unnamed, kinds
        known = self.written.get(form)
        if known is None:
            try:
                known = self._first(kernel, places), names
            except TilewrightError as error:
                self.written[form] = error
                raise
            self.written[form] = known
            return known[0]
        if isinstance(known, TilewrightError):
            raise known
        return _alike(known[0], kernel, places, known[1], names)

    def _first(self, kernel: Kernel, places: Mapping[str, Placement]) -> KernelCall:
        """The call of a kernel of a new form."""
        fill = kernel.anchor.attribute("fill")
        if fill:
            raise refuse("lower-operation", f"C pads images with 0, not with {fill}", kernel.symbol)
        placed = {
            name: (place.arena, place.offset, place.strides) for name, place in places.items()
        }
        schedule = self.planner.plan(kernel).schedule
        program = build(kernel, schedule, self.host, placed)
        Boundary().apply(self.context, program)
        return call_of(CompiledKernel(kernel, schedule, program), self.lanes)


_Form = tuple[Kernel, tuple[tuple[str, tuple[int, ...]], ...]]
"""A kernel without names, and the arenas and strides of its operands in order of appearance."""


def _alike(
    first: KernelCall,
    kernel: Kernel,
    places: Mapping[str, Placement],
    names_of_first: Mapping[str, str],
    names: Mapping[str, str],
) -> KernelCall:
    """The call of a kernel of the same form as another's."""
    back = {unnamed: name for name, unnamed in names.items()}
    matched = {name: back[unnamed] for name, unnamed in names_of_first.items()}
    parameters = tuple(
        replace(parameter, tensor=matched[parameter.tensor])
        for parameter in first.source.parameters
    )
    schedule = first.kernel.schedule
    assert schedule is not None
    return KernelCall(
        replace(first.kernel, kernel=kernel, schedule=renamed(schedule, matched)),
        replace(first.source, parameters=parameters),
        {name: (place.arena, place.offset) for name, place in places.items()},
        {matched[name]: size for name, size in first.scratch.items()},
    )


def _step(function: Callable[..., None], number: int, sizes: Mapping[str, int]) -> HostStep:
    def run(arenas: Arenas) -> None:
        function(
            ctypes.c_int(number),
            _pointer(arenas, WEIGHTS, sizes),
            _pointer(arenas, ACTIVATIONS, sizes),
        )

    return run


def _pointer(arenas: Arenas, name: str, sizes: Mapping[str, int]) -> ctypes.c_void_p:
    space: NDArray[Any] = arenas.get(name, np.zeros(0, np.uint8))
    if space.nbytes < sizes[name]:
        reason = f"arena {name} has {space.nbytes} bytes, the package needs {sizes[name]}"
        raise refuse("package-invalid", reason)
    if not space.flags.c_contiguous:
        raise refuse("package-invalid", f"arena {name} is not contiguous")
    return ctypes.c_void_p(space.ctypes.data)
