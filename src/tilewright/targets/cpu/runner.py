"""Runs a package of the cpu target from Python: builds its library, holds its memory."""

from __future__ import annotations

import ctypes
import json
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from tilewright.codegen.c.compiler import FLAGS
from tilewright.codegen.host.library import arena, load_library, opened, read_weights
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.interface import (
    ALIGNMENT,
    WEIGHTS_FILE,
    KernelProfile,
    Profile,
    Runner,
    RunResult,
    TensorInfo,
    Watch,
)
from tilewright.errors import refuse
from tilewright.numerics.element_types import dtype_named
from tilewright.targets.cpu.builds import build_of, refuse_foreign
from tilewright.targets.cpu.manifest import StepRow, read_manifest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.ir.types import Array

MOST_THREADS = 1024


def _kernels(steps: Sequence[StepRow], seconds: NDArray[np.float64]) -> tuple[KernelProfile, ...]:
    """One row a step, one after the other."""
    spans = [float(span) for span in seconds[: len(steps)]]
    starts = [0.0, *accumulate(spans)]
    return tuple(
        KernelProfile(step.symbol, step.nodes, start=start, end=start + span, seconds=span)
        for step, start, span in zip(steps, starts, spans, strict=False)
    )


_Checks = tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
"""The name, shape and dtype of arrays."""


class _Expected(NamedTuple):
    """The arrays that a run of some sizes takes and gives."""

    sizes: tuple[int, ...]
    inputs: tuple[TensorInfo, ...]
    operands: _Checks
    results: _Checks

    def fresh(self) -> dict[str, Array]:
        """New arrays for the outputs."""
        return {name: np.empty(shape, dtype) for name, shape, dtype in self.results}


def _checks(ports: Sequence[Port]) -> _Checks:
    """Return the name, shape and dtype of every port, which arrays are checked against."""
    return tuple((port.name, port.shape, dtype_named(port.dtype)) for port in ports)


class CpuRunner(Runner):
    """A package's library with its weights and a workspace.

    Threads that share a runner take turns; with a runner each they run side by side.
    """

    def __init__(self, directory: Path, flags: Sequence[str] = ()) -> None:
        """Build and load the library; ``flags`` replace those of the package's processor."""
        program = directory
        manifest = read_manifest(program)
        made_for = build_of(manifest.processor)
        # Other flags than its processor's build it without tiles, too (pieces.h).
        refuse_foreign(made_for, tiles=manifest.tiles and not flags)
        flags = flags or (*FLAGS, *made_for.flags)
        self.prefix = manifest.prefix
        self._inputs, self._outputs = manifest.inputs, manifest.outputs
        self.inputs = tuple(port.info for port in self._inputs)
        self.outputs = tuple(port.info for port in self._outputs)
        self.sizes = manifest.sizes
        self.steps = manifest.steps
        self._memory = manifest.workspace_bytes, manifest.scratch_bytes
        most = {size: port.shape[axis] for port in self._inputs for axis, size in port.ended}
        self._expected = self._at(tuple(most.get(size, 1) for size in self.sizes))
        self._lock = Lock()
        self.bare = manifest.bare
        names = ("run", "step") if self.bare else ("run_by", "profile_by", "step", "team_stop")
        self.library = opened(
            load_library(program, self.prefix, flags),
            *(f"{self.prefix}_{name}" for name in names),
        )
        size = manifest.weight_bytes
        if manifest.weights == "array":
            place = (ctypes.c_uint8 * size).in_dll(self.library, f"{self.prefix}_weights")
            self.weights = np.ctypeslib.as_array(place)
        else:
            self.weights = read_weights(program / WEIGHTS_FILE, size)
        for name in names:
            getattr(self.library, f"{self.prefix}_{name}").restype = None
        self._hold(arena(self._memory[0]))
        self.functions: dict[str, Callable[..., None]] = {}
        team = 0 if self.bare else 1
        for function, more in (("run", 2), *(() if self.bare else (("profile", 2),))):
            called = getattr(self.library, f"{self.prefix}_{function}" + ("_by" if team else ""))
            # Told the types, ctypes takes addresses as Python's numbers.
            count = len(self._inputs) + len(self._outputs) + more + team
            seconds = [ctypes.c_void_p] if function == "profile" else []
            sizes = [ctypes.c_long] * len(self.sizes)
            called.argtypes = [*[ctypes.c_void_p] * count, *sizes, *seconds]
            self.functions[function] = called
        if not self.bare:
            getattr(self.library, f"{self.prefix}_team_start").restype = ctypes.c_void_p
        self._team = ctypes.c_void_p(None)
        self._threads = 1
        self._stop: weakref.finalize[..., CpuRunner] | None = None

    def _hold(self, workspace: NDArray[np.uint8]) -> None:
        """Work in this memory from now on."""
        self.workspace = workspace
        self._arenas = (self.weights.ctypes.data, workspace.ctypes.data)

    @property
    def threads(self) -> int:
        """Threads that share the work of a run; any number gives the same results."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        if not 1 <= count <= MOST_THREADS:
            raise refuse("option-threads", f"{count} threads: 1 to {MOST_THREADS} are possible")
        if count > 1 and self.bare:
            raise refuse("option-threads", "the package is bare: its C has no threads")
        with self._lock:
            if count == self._threads:
                return
            if self._stop is not None:
                self._stop()
            self._team, self._stop, self._threads = ctypes.c_void_p(None), None, 1
            size, scratch = self._memory
            self._hold(arena(-(-size // ALIGNMENT) * ALIGNMENT + scratch * (count - 1)))
            if count == 1:
                return
            team = getattr(self.library, f"{self.prefix}_team_start")(ctypes.c_int(count))
            if not team:
                raise refuse("cpu-threads", f"the system does not start {count} threads")
            self._team, self._threads = ctypes.c_void_p(team), count
            stop = getattr(self.library, f"{self.prefix}_team_stop")
            self._stop = weakref.finalize(self, stop, self._team)

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        trace: Path | None = None,
        check_races: bool = False,
        watch: Watch | None = None,
        profile: bool = False,
    ) -> RunResult:
        """Run once on ``threads`` threads; the profile has seconds for every kernel."""
        del check_races
        expected = self._of(inputs)
        sizes, arrays = expected.sizes, self._arrays(inputs, expected)
        outputs = expected.fresh()
        if profile or trace is not None or watch is not None:
            measured = self._profiled(arrays, outputs, sizes, watch)
            if trace is not None:
                write_trace(trace, measured.kernels)
            return RunResult(outputs, lambda: measured)
        self._enter("run", (*arrays, *outputs.values()), sizes)
        # What is measured later leaves the caller's outputs alone.
        return RunResult(outputs, lambda: self._profiled(arrays, expected.fresh(), sizes))

    def _of(self, inputs: Mapping[str, Array]) -> _Expected:
        """The arrays of a run on inputs. Refuses inputs that disagree (``shape-conflict``),
        and sizes that the program does not have (``shape-bounds``)."""
        if not self.sizes:
            return self._expected
        found: dict[str, tuple[int, str]] = {}
        for port in self._inputs:
            shape = np.shape(inputs.get(port.name, ()))
            for axis, name in port.ends.items():
                if axis >= len(shape):
                    continue  # Which check_inputs refuses.
                size, first = found.setdefault(name, (shape[axis], port.name))
                if shape[axis] != size:
                    reason = f"{name} is {shape[axis]}, and {size} in input {first!r}"
                    raise refuse("shape-conflict", reason, port.name)
                if not 1 <= size <= port.shape[axis]:
                    bounds = f"1 to {port.shape[axis]}"
                    raise refuse("shape-bounds", f"{name} is {size}, outside {bounds}", port.name)
        sizes = tuple(found.get(name, (1, ""))[0] for name in self.sizes)
        expected = self._expected
        if expected.sizes != sizes:
            expected = self._expected = self._at(sizes)
        return expected

    def _at(self, sizes: tuple[int, ...]) -> _Expected:
        """The arrays of a run of the sizes."""
        known = dict(zip(self.sizes, sizes, strict=True))

        def sized(port: Port) -> Port:
            extents = enumerate(port.shape)
            shape = tuple(known.get(port.ends.get(axis, ""), extent) for axis, extent in extents)
            return replace(port, shape=shape)

        inputs = [sized(port) for port in self._inputs]
        outputs = [sized(port) for port in self._outputs]
        asked = tuple(port.info for port in inputs)
        return _Expected(sizes, asked, _checks(inputs), _checks(outputs))

    def _profiled(
        self,
        inputs: Sequence[Array],
        outputs: Mapping[str, Array],
        sizes: Sequence[int],
        watch: Watch | None = None,
    ) -> Profile:
        """Run, with a look at the clock before each step."""
        seconds = np.zeros(max(len(self.steps), 1))
        begin = time.perf_counter()
        if watch is None and not self.bare:
            self._enter("profile", (*inputs, *outputs.values()), sizes, seconds)
        else:
            self._run_steps(inputs, outputs, sizes, seconds, watch)
        whole = time.perf_counter() - begin
        memory = self.weights.size + self.workspace.size
        return Profile(_kernels(self.steps, seconds), seconds=whole, peak_memory_bytes=memory)

    def _run_steps(
        self,
        inputs: Sequence[Array],
        outputs: Mapping[str, Array],
        sizes: Sequence[int],
        seconds: NDArray[np.float64],
        watch: Watch | None,
    ) -> None:
        """Run the network one step at a time, noting each step's seconds for ``profile``."""
        from tilewright.graph.placement import ACTIVATIONS, WEIGHTS  # A plain run needs no graph.

        arenas = {WEIGHTS: self.weights, ACTIVATIONS: self.workspace}
        for port, array in zip(self._inputs, inputs, strict=True):
            view, layout = port.box(arenas)
            missing = [most - size for most, size in zip(port.shape, array.shape, strict=True)]
            view[...] = layout.pack(np.pad(array, [(0, count) for count in missing]))
        function = getattr(self.library, f"{self.prefix}_step")
        pointers = [ctypes.c_void_p(space.ctypes.data) for space in (self.weights, self.workspace)]
        given = [ctypes.c_long(size) for size in sizes]
        for number, step in enumerate(self.steps):
            begin = time.perf_counter()
            function(ctypes.c_int(number), *pointers, *given)
            seconds[number] = time.perf_counter() - begin
            if watch is not None:
                watch(step.symbol, arenas)
        for port in self._outputs:
            view, layout = port.box(arenas)
            whole = layout.unpack(view, port.shape)
            outputs[port.name][...] = whole[tuple(map(slice, outputs[port.name].shape))]

    def call(
        self,
        function: str,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *more: NDArray[Any],
    ) -> None:
        """Call ``run`` or ``profile`` on arrays that have been checked."""
        results = [outputs[info.name] for info in self.outputs]
        expected = self._of(inputs)
        self._enter(function, (*self._arrays(inputs, expected), *results), expected.sizes, *more)

    def _arrays(self, inputs: Mapping[str, Array], expected: _Expected) -> list[Array]:
        """The inputs in the program's order, as C takes them; refuses what ``check_inputs`` does.

        A call of a small network takes ten microseconds: what is right is found right in a few
        tests, and what is not is looked at again for the message.
        """
        arrays: list[Array] = []
        for name, shape, dtype in expected.operands:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                break
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                array = array.copy()
            arrays.append(array)
        if len(arrays) == len(expected.operands) == len(inputs):
            return arrays
        self.check_inputs(inputs, expected.inputs)
        names = (name for name, _, _ in expected.operands)
        return [np.require(inputs[name], requirements=("C", "A")) for name in names]

    def _enter(
        self,
        function: str,
        arrays: Iterable[Array],
        sizes: Sequence[int] = (),
        *more: NDArray[Any],
    ) -> None:
        """Call a function of the library on arrays in the program's order, in turn."""
        places = [*map(_address, arrays), *sizes, *map(_address, more)]
        with self._lock:
            if self.bare:
                self.functions[function](*self._arenas, *places)
            else:
                self.functions[function](self._team, *self._arenas, *places)


def _address(array: Array) -> int:
    """Return the address of a contiguous array's first byte."""
    try:
        # A fifth of the time that NumPy takes for it. Its stubs leave out that arrays are buffers.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        # It is read-only or empty, or no buffer, as bfloat16's are.
        return array.ctypes.data


def write_trace(path: Path, kernels: Sequence[KernelProfile]) -> None:
    """One event for each kernel, for Perfetto or chrome://tracing."""
    events = [
        {
            "name": ", ".join(kernel.nodes) or kernel.symbol,
            "cat": "kernel",
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "ts": (kernel.start or 0.0) * 1e6,
            "dur": (kernel.seconds or 0.0) * 1e6,
            "args": {"kernel": kernel.symbol},
        }
        for kernel in kernels
    ]
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n")
