"""Schedules of one kernel as functions that can be run: built into one library, equal ones once."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.c.compiler import FLAGS, build_library
from tilewright.codegen.host.calls import KernelSource
from tilewright.codegen.host.library import arena
from tilewright.errors import TilewrightError
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import element_dtype, layout_of, shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.system.template import filled
from tilewright.system.temporary import temporary_folder
from tilewright.targets.cpu.headers import HEADERS, SUPPORT, header
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.walk import kernel_source
from tilewright.tile.build import build
from tilewright.tile.dialect import TensorOp, programs_of
from tilewright.tile.passes.boundary import Boundary


@contextmanager
def loaded(sources: Mapping[str, str]) -> Generator[ctypes.CDLL]:
    """A library of C sources by file name, built as packages are for the processor at hand.

    They may include the packages' headers. Nothing of it may be used after the context: a long
    search would otherwise keep thousands in memory. Raises TilewrightError when the compiler fails.
    """
    with temporary_folder() as folder:
        for name in HEADERS:
            (folder / name).write_text(header(name))
        paths = [folder / name for name in sources]
        for path, text in zip(paths, sources.values(), strict=True):
            path.write_text(text)
        built = folder / "library.so"
        build_library(paths, built, (folder,), (*FLAGS, *this_processor().flags))
        library = ctypes.CDLL(str(built))
        try:
            yield library
        finally:
            close = ctypes.CDLL(None).dlclose
            close.argtypes = [ctypes.c_void_p]
            close(library._handle)  # pyright: ignore[reportPrivateUsage]: ctypes has no other way


def timed_text(lanes: int, text: str, name: str, parameters: str, arguments: str) -> str:
    """A file with a function's ``text``, and ``NAME_seconds``, which calls it again and again on
    ``arguments`` and gives the seconds that this takes."""
    template = SUPPORT / "templates" / "timed.c.in"
    return filled(
        template, lanes=lanes, text=text, name=name, parameters=parameters, arguments=arguments
    )


@dataclass(frozen=True)
class Sources:
    """The C of schedules of one kernel, as one core runs them."""

    lanes: int
    kernels: tuple[KernelSource | None, ...]
    """Kernels in the order of the schedules; None for one of which no program can be made."""
    tensors: dict[str, TensorOp]

    @classmethod
    def of(cls, kernel: Kernel, machine: Machine, schedules: Sequence[Schedule]) -> Sources:
        """Make the programs; ``machine`` is one of machine.py's."""
        lanes = machine.memory("registers").granule // 4
        sources: list[KernelSource | None] = []
        tensors: dict[str, TensorOp] = {}
        for schedule in schedules:
            try:
                program = build(kernel, replace(schedule, shared=""), machine)
                Boundary().apply(CompilerContext(machine), program)
                sources.append(kernel_source(program, lanes))
                tensors = tensors or programs_of(program)[0].tensors
            except TilewrightError:
                sources.append(None)
        return cls(lanes, tuple(sources), tensors)

    @property
    def distinct(self) -> tuple[int, ...]:
        """Numbers of the schedules whose C no earlier one has."""
        first: dict[str, int] = {}
        for number, source in enumerate(self.kernels):
            if source is not None:
                first.setdefault(source.text, number)
        return tuple(first.values())

    def text(self, number: int) -> str:
        """A file with the schedule's kernel and a function that times it."""
        source = self.kernels[number]
        assert source is not None
        name = f"candidate_{number}"
        listed = [
            parameter.cast(f"tensors[{place}]") for place, parameter in enumerate(source.parameters)
        ]
        text = source.named(name)
        return timed_text(self.lanes, text, name, "void **tensors", ", ".join(listed))


class Candidates:
    """The built kernels of ``Sources``, with tensors to run them on."""

    def __init__(self, sources: Sources, library: ctypes.CDLL) -> None:
        """Tensors hold small random numbers and lie as their layouts say."""
        self.sources = sources
        self._library = library
        self._spaces = {name: _tensor(op) for name, op in sources.tensors.items()}

    def seconds(self, number: int, repeats: int = 1) -> float:
        """Seconds for one run of a schedule that was built: the mean of ``repeats``."""
        source = self.sources.kernels[number]
        assert source is not None
        pointers = (ctypes.c_void_p * len(source.parameters))(
            *(self._spaces[each.tensor].ctypes.data for each in source.parameters)
        )
        run = getattr(self._library, f"candidate_{number}_seconds")
        run.restype = ctypes.c_double
        return float(run(pointers, ctypes.c_long(repeats))) / repeats


@contextmanager
def built(sources: Sources, numbers: Sequence[int]) -> Generator[Candidates]:
    """Build some of the schedules. Raises TilewrightError when the compiler fails."""
    texts = {f"candidate_{number}.c": sources.text(number) for number in numbers}
    with loaded(texts) as library:
        yield Candidates(sources, library)


def _tensor(op: TensorOp) -> NDArray[np.uint8]:
    """Memory of a tensor: random numbers for floats, zeros for all else (indices are valid)."""
    kind = tensor_type(op.result)
    element = element_dtype(kind.element_type)
    size = Layout.parse(layout_of(op.result), len(shape_of(op.result))).size(shape_of(op.result))
    space: Any = arena(size * element.itemsize)
    if np.issubdtype(element, np.floating):
        values = np.random.default_rng(size).standard_normal(min(size, 1 << 16)) * 0.1
        view = space.view(element)
        for start in range(0, size, values.size):
            view[start : start + values.size] = values[: min(values.size, size - start)]
    return space
