"""Seconds that schedules of a kernel take on the processor at hand: built, run, timed.

Candidates of one kernel are built into one library and timed in turns, so that a processor whose
speed drifts is as kind to one as to another; the least time of all turns counts.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.passes import CompilerContext
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.compiler import FLAGS, build_library
from tilewright.targets.cpu.package import HEADERS, SUPPORT
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.runner import arena
from tilewright.targets.cpu.walk import KERNEL, KernelSource, kernel_source
from tilewright.tile.build import build
from tilewright.tile.dialect import TensorOp, programs_of
from tilewright.tile.passes.boundary import Boundary
from tilewright.types import element_dtype, layout_of, shape_of, tensor_type

TURNS = 5
"""Times that each candidate is measured."""

TURN_SECONDS = 2e-3
"""Least length of a turn, so that reading the clock does not count."""

_TIMER = """\
double time_{number}(void **tensors, long repeats)
{{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long r = 0; r < repeats; r++)
        {call};
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}}
"""


def measure(
    kernel: Kernel,
    machine: Machine,
    schedules: Sequence[Schedule],
    *,
    turns: int = TURNS,
    turn_seconds: float = TURN_SECONDS,
) -> list[float]:
    """Seconds that one core takes for each schedule; infinite for one that cannot be built.

    ``machine`` is one of machine.py's. Tensors hold small random numbers and lie as the layouts
    say, one behind the other. A function of plain values, so that executors can run it in other
    processes. Raises TilewrightError when the compiler fails.
    """
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
    found = [float("inf")] * len(schedules)
    if not tensors:
        return found
    distinct = {source.text: number for number, source in enumerate(sources) if source is not None}
    with tempfile.TemporaryDirectory(prefix="tilewright-measure-") as scratch:
        library = _library(Path(scratch), sources, distinct, lanes)
        spaces = {name: _tensor(op) for name, op in tensors.items()}
        times: dict[str, float] = {}
        for turn in range(turns):
            for text, number in distinct.items():
                source = sources[number]
                assert source is not None
                repeats = max(1, int(turn_seconds / max(times[text], 1e-9))) if turn else 1
                pointers = (ctypes.c_void_p * len(source.arguments))(
                    *(spaces[argument.tensor].ctypes.data for argument in source.arguments)
                )
                timer = getattr(library, f"time_{number}")
                timer.restype = ctypes.c_double
                took = float(timer(pointers, ctypes.c_long(repeats))) / repeats
                times[text] = took if turn <= 1 else min(times[text], took)
        _close(library)
    return [float("inf") if source is None else times[source.text] for source in sources]


def _library(
    folder: Path, sources: Sequence[KernelSource | None], distinct: dict[str, int], lanes: int
) -> ctypes.CDLL:
    for name in HEADERS:
        (folder / name).write_text((SUPPORT / name).read_text())
    included = "".join(f'#include "{name}"\n' for name in ("vectors.h", "integers.h"))
    head = f"#define LANES {lanes}\n{included}#include <time.h>\n"
    paths: list[Path] = []
    for text, number in distinct.items():
        source = sources[number]
        assert source is not None
        name = f"candidate_{number}"
        listed = [
            f"({'' if argument.written else 'const '}{argument.c_type} *)tensors[{place}]"
            for place, argument in enumerate(source.arguments)
        ]
        call = f"{name}({', '.join(listed)})"
        body = f"{text.replace(KERNEL, name)}\n{_TIMER.format(number=number, call=call)}"
        paths.append(folder / f"{name}.c")
        paths[-1].write_text(f"#define _POSIX_C_SOURCE 200112L\n{head}{body}")
    built = folder / "candidates.so"
    build_library(paths, built, (folder,), (*FLAGS, *this_processor().flags))
    return ctypes.CDLL(str(built))


def _close(library: ctypes.CDLL) -> None:
    """Unload it: a long search would keep thousands."""
    close = ctypes.CDLL(None).dlclose
    close.argtypes = [ctypes.c_void_p]
    close(library._handle)  # pyright: ignore[reportPrivateUsage]: ctypes has no other way


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
