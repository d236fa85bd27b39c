"""Runs a package's C on the host: values from the C, times from the timing of its words."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.host.library import library_of, load_library
from tilewright.codegen.program.files import KernelRow
from tilewright.codegen.program.interface import need_functions
from tilewright.errors import refuse
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

    functions: tuple[Path, ...] = ()
    """C files and headers of the user's own functions; () for those of the package."""

    _library: ctypes.CDLL | None = None

    def use_functions(self, files: Sequence[Path]) -> None:
        """Build the kernels with the user's functions: each file is C or a header."""
        need_functions(files)
        self.functions = tuple(files)
        self._library = None
        for loop in self.loops.values():
            loop.runner.use_functions(files)

    @property
    def library(self) -> ctypes.CDLL:
        """The kernels with the machine's functions, built when first asked for."""
        if self._library is None:
            self._library = self._built()
        return self._library

    def _built(self) -> ctypes.CDLL:
        name, folder = network_name(self.parts.network.symbol.data), self.parts.directory / FOLDER
        if not self.functions:
            return ctypes.CDLL(str(load_library(folder, name, FLAGS)))
        texts = {
            path.relative_to(folder): path.read_bytes()
            for place in ("include", "src")
            for path in sorted((folder / place).iterdir())
        }
        texts |= {Path("shim", file.name): file.read_bytes() for file in self.functions}
        library = library_of(texts, name, FLAGS)
        try:
            return ctypes.CDLL(str(library))
        except OSError as error:
            raise refuse(
                "option-functions", f"the kernels do not link: {error}", help="name all C files"
            ) from None

    def build(self) -> None:
        """Build the package, and load the library of its C."""
        super().build()
        _ = self.library

    def begin(self) -> None:
        """The memories as a run finds them; a user's functions may have no order to choose."""
        self._start()
        arenas = (self.arenas[WEIGHTS], self.arenas[ACTIVATIONS], self.parts.image)
        self._main = _Memory(*(data.ctypes.data if data.size else 0 for data in arenas))

    def lose_chip(self) -> None:
        """Memories on the chip as a run finds them: the functions begin anew."""
        self._start()

    def _start(self) -> None:
        """Let the functions begin: on the host, memories on the chip hold a pattern."""
        prefix = c_of(self.parts.machine).prefix
        if not self.functions:
            poison = ctypes.c_ubyte.in_dll(self.library, f"{prefix}_host_poison")
            poison.value = byte_of(self.seed, POISON)
        start = getattr(self.library, f"{prefix}_host_start", None)
        if start is not None:
            start(ctypes.c_uint(self.order))

    def execute(self, kernel: KernelRow) -> None:
        """Call the kernel's function."""
        number = self.parts.file.kernels.index(kernel)
        run = getattr(self.library, f"{network_name(self.parts.network.symbol.data)}_kernel")
        run(ctypes.c_int(number), ctypes.byref(self._main))

    def memory(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a memory on the chip."""
        function = f"{c_of(self.parts.machine).prefix}_host_address"
        place = getattr(self.library, function, None)
        if place is None:
            raise refuse(
                "option-functions",
                f"results stay in {name}, and there is no {function} to look at them",
                f"memory.{name}.resident",
                f"uint8_t *{function}(const char *memory), or resident = []",
            )
        place.restype = ctypes.c_void_p
        size = self.parts.machine.memory(name).bytes or 0
        array = (ctypes.c_uint8 * size).from_address(place(name.encode()))
        return np.ctypeslib.as_array(array)


class _Memory(ctypes.Structure):
    """The C structure ``PREFIX_memory``: the bases of arenas and tables."""

    _fields_ = [(name, ctypes.c_uint64) for name in (WEIGHTS, ACTIVATIONS, TABLES)]
