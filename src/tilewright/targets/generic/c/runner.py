"""Runs a package's C on the host: values from the C, times from the timing of its words."""

from __future__ import annotations

import ctypes
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.host.library import load_library
from tilewright.codegen.program.files import KernelRow
from tilewright.graph.names import network_name
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.numerics.poison import byte_of
from tilewright.targets.generic.c.host import POISON
from tilewright.targets.generic.c.program import FLAGS, FOLDER
from tilewright.targets.generic.c.records import c_of
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.runner import InstructionRunner


class CRunner(InstructionRunner):
    """A package whose kernels are C that calls the machine's functions."""

    order = 0
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

    def begin(self) -> None:
        """The memories as a run finds them."""
        prefix = c_of(self.parts.machine).prefix
        poison = ctypes.c_ubyte.in_dll(self.library, f"{prefix}_host_poison")
        poison.value = byte_of(self.seed, POISON)
        getattr(self.library, f"{prefix}_host_start")(ctypes.c_uint(self.order))
        arenas = (self.arenas[WEIGHTS], self.arenas[ACTIVATIONS], self.parts.image)
        self._main = _Memory(*(data.ctypes.data if data.size else 0 for data in arenas))

    def execute(self, kernel: KernelRow) -> None:
        """Call the kernel's function."""
        number = self.parts.file.kernels.index(kernel)
        run = getattr(self.library, f"{network_name(self.parts.network.symbol.data)}_kernel")
        run(ctypes.c_int(number), ctypes.byref(self._main))

    def memory(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a memory on the chip."""
        place = getattr(self.library, f"{c_of(self.parts.machine).prefix}_host_address")
        place.restype = ctypes.c_void_p
        size = self.parts.machine.memory(name).bytes or 0
        array = (ctypes.c_uint8 * size).from_address(place(name.encode()))
        return np.ctypeslib.as_array(array)


class _Memory(ctypes.Structure):
    """The C structure ``PREFIX_memory``: the bases of arenas and tables."""

    _fields_ = [(name, ctypes.c_uint64) for name in (WEIGHTS, ACTIVATIONS, TABLES)]
