"""Runs a package's C on the host: values from the C, times from the timing of its words."""

from __future__ import annotations

import ctypes
from functools import cached_property

import numpy as np

from tilewright.codegen.host.library import load_library
from tilewright.codegen.program.files import HeldResult
from tilewright.graph.names import network_name
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.numerics.poison import byte_of
from tilewright.targets.generic.c.host import POISON
from tilewright.targets.generic.c.program import FLAGS, FOLDER
from tilewright.targets.generic.c.records import c_of
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.package import Package
from tilewright.targets.generic.runner import InstructionRunner


class CRunner(InstructionRunner):
    """A package whose kernels are C that calls the machine's functions."""

    def __init__(self, package: Package) -> None:
        super().__init__(package)
        self.order = 0
        """The order in which commands run on the host; see shim/queues.h."""

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The kernels with the machine's functions for the host, built when first asked for."""
        name = network_name(self.parts.network.symbol.data)
        return ctypes.CDLL(str(load_library(self.parts.directory / FOLDER, name, FLAGS)))

    def build(self) -> None:
        """Build the package, and load the library of its C."""
        super().build()
        _ = self.library

    def simulation(self, *, traced: bool) -> _Run:
        """Return a run that calls the C's functions."""
        return _Run(self)


class _Run:
    """Values from the C, times from the timing core."""

    def __init__(self, runner: CRunner) -> None:
        self.runner = runner
        self.times = runner.times
        self.write_trace = runner.write_trace
        prefix = c_of(runner.parts.machine).prefix
        poison = ctypes.c_ubyte.in_dll(runner.library, f"{prefix}_host_poison")
        poison.value = byte_of(runner.seed, POISON)
        getattr(runner.library, f"{prefix}_host_start")(ctypes.c_uint(runner.order))
        arenas = (runner.arenas[WEIGHTS], runner.arenas[ACTIVATIONS], runner.parts.image)
        self.memory = _Memory(*(data.ctypes.data if data.size else 0 for data in arenas))
        self.kernels = {
            (row.start, row.end): number for number, row in enumerate(runner.parts.file.kernels)
        }

    def run(self, start: int, end: int) -> None:
        """Run the kernel that has these words."""
        if start < end:
            network = network_name(self.runner.parts.network.symbol.data)
            kernel = getattr(self.runner.library, f"{network}_kernel")
            kernel(ctypes.c_int(self.kernels[start, end]), ctypes.byref(self.memory))

    def reveal(self, held: HeldResult) -> None:
        """Copy a result that stays on the chip to its place among the activations."""
        prefix = c_of(self.runner.parts.machine).prefix
        place = getattr(self.runner.library, f"{prefix}_host_address")
        place.restype = ctypes.c_void_p
        data = ctypes.string_at(place(held.memory.encode()) + held.address, held.bytes)
        arena = self.runner.arenas[ACTIVATIONS]
        arena[held.place : held.place + held.bytes] = np.frombuffer(data, np.uint8)


class _Memory(ctypes.Structure):
    """The C structure ``PREFIX_memory``: the bases of arenas and tables."""

    _fields_ = [(name, ctypes.c_uint64) for name in (WEIGHTS, ACTIVATIONS, TABLES)]
