"""Kernels on the host: built with the system's C compiler beside shim/, and run.

What is run is the emitted file itself. Orders of execution are those of codegen/c/shim/queues.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import tilewright.codegen.c as codegen
from tilewright.codegen.host.library import library_of
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci

SHIM = Path(__file__).parent / "shim"
QUEUES = Path(codegen.__file__).parent / "shim"

FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror")
"""The C compiler's flags for kernels and the core."""

COUNTS = (
    *("commands", "mads", "cube_cycles", "vector_commands", "vector_cycles", "scatters", "loads"),
    *("gm_reads", "gm_writes", "gm_read_bursts", "gm_write_bursts", "cbuf_reads", "ub_copies"),
    *("sets", "waits", "barriers"),
)
"""The names of the core's counters; reads, writes and copies are bytes."""

ORDERS = (0, *range(1, 13))
"""Orders of the pipes: as issued (0), each as early and as late as can be, and seeds."""


POISON = 0xFF
"""The byte that memories begin with: not-a-number in halves and floats."""


@dataclass(frozen=True)
class Outcome:
    """The problems of a run, and its counters."""

    problems: tuple[str, ...]
    counts: Mapping[str, int]


def _library(name: str, texts: Mapping[str, str], includes: Sequence[Path]) -> Path:
    headers = [path for folder in includes for path in sorted(folder.glob("*.h"))]
    sources = {Path("shim", file): text.encode() for file, text in texts.items()}
    sources |= {Path("shim", path.name): path.read_bytes() for path in headers}
    return library_of(sources, name, FLAGS)


@cache
def core_library() -> ctypes.CDLL:
    """The host core, whose symbols kernels find."""
    paths = [*sorted(SHIM.glob("*.c")), QUEUES / "queues.c"]
    texts = {path.name: path.read_text() for path in paths}
    path = _library("cce", texts, (SHIM, QUEUES))
    core = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    core.cce_message.restype = ctypes.c_char_p
    core.cce_count.restype = ctypes.c_uint64
    return core


@dataclass(frozen=True)
class Kernel:
    """A built kernel, ready to run."""

    function: Any
    core: DaVinci

    def run(
        self,
        arguments: Mapping[str, NDArray[Any]],
        *,
        order: int = 0,
        binary: bool = True,
        length: int | None = None,
        blocks: int = 1,
        poison: int = POISON,
    ) -> Outcome:
        """Run once on arrays, by name and in the order of the kernel's parameters, and with its
        length if it takes one: ``blocks`` blocks one after the other, which must not touch what
        another one writes. Memories begin with bytes ``poison``."""
        host, core = core_library(), self.core
        sizes = (core.l1, core.l0a, core.l0b, core.l0c, core.ub)
        least = int(core.barrier_blocks)
        host.cce_core((ctypes.c_uint64 * 5)(*sizes), core.events, int(not binary), least)
        ctypes.c_ubyte.in_dll(host, "cce_poison").value = poison
        host.cce_begin(ctypes.c_uint(order))
        pointers: list[ctypes.c_void_p] = []
        for name, array in arguments.items():
            assert array.flags.c_contiguous
            pointer = ctypes.c_void_p(array.ctypes.data)
            pointers.append(pointer)
            host.cce_region(name.encode(), pointer, ctypes.c_uint64(array.nbytes))
        for block in range(blocks):
            host.cce_next(ctypes.c_int64(block), ctypes.c_int64(blocks))
            self.function(*pointers, *(() if length is None else (ctypes.c_int64(length),)))
        count = host.cce_end()
        problems = [host.cce_message(number).decode() for number in range(min(count, 20))]
        return Outcome(
            tuple(problems), {name: int(host.cce_count(name.encode())) for name in COUNTS}
        )


def build(text: str, name: str, core: DaVinci = ASCEND_910) -> Kernel:
    """A kernel of its C text. Raises TilewrightError where the compiler refuses it."""
    return build_all({name: text}, core)[name]


def build_all(texts: Mapping[str, str], core: DaVinci) -> dict[str, Kernel]:
    """Kernels of their C texts by name, in one library."""
    core_library()
    if not texts:
        return {}
    files = {f"{name}.c": text for name, text in texts.items()}
    library = ctypes.CDLL(str(_library("davinci", files, (SHIM,))))
    kernels: dict[str, Kernel] = {}
    for name in texts:
        function = getattr(library, name)
        function.restype = None
        kernels[name] = Kernel(function, core)
    return kernels
