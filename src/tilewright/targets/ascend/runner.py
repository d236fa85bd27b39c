"""Runs a package's kernels on the host core; their times were simulated before (timing.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.files import KernelRow, ProgramParts
from tilewright.codegen.program.interface import RunResult, Watch
from tilewright.codegen.program.stepped import SteppedRunner, Times
from tilewright.errors import refuse
from tilewright.graph.arenas import strided
from tilewright.graph.dialect import KernelOp
from tilewright.ir.types import Array
from tilewright.numerics.poison import byte_of
from tilewright.simulate.trace import Events
from tilewright.targets.ascend.host import POISON, Kernel, build_all
from tilewright.targets.ascend.lowering.launches import Argument, Launch
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.package import FOLDER, LaunchFile, Length, core_of
from tilewright.targets.ascend.timeline import events_of


class AscendRunner(SteppedRunner):
    """A package on the host core."""

    roundoff = 2.0**-11
    """Operands, weights, biases and results of products are of half precision."""

    def __init__(self, parts: ProgramParts, file: LaunchFile) -> None:
        super().__init__(parts)
        self.launches: tuple[Launch, ...] = file.launches
        self.length: Length | None = file.length
        self.size = 0 if file.length is None else file.length.longest
        """The length of the last run."""
        self.core: DaVinci = core_of(parts.machine)
        self.order = 0
        """The order in which commands run; see codegen/c/shim/queues.h."""
        self.exact = False
        self.operations = {
            op.symbol.data: op for op in parts.network.block.ops if isinstance(op, KernelOp)
        }

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        trace: Path | None = None,
        check_races: bool = False,
        watch: Watch | None = None,
        profile: bool = False,
    ) -> RunResult:
        """Run the network once on given inputs. Where a run has a length of its own, inputs are as
        long, and so are outputs."""
        if self.length is not None:
            self.size = self._size(inputs)
            inputs = {
                name: _extended(np.asarray(array), self.length.inputs.get(name, ()), self.length)
                for name, array in inputs.items()
            }
        result = super().run(
            inputs, trace=trace, check_races=check_races, watch=watch, profile=profile
        )
        if self.length is None:
            return result
        outputs = {
            name: _ended(array, self.length.outputs.get(name, ()), self.size)
            for name, array in result.outputs.items()
        }
        return replace(result, outputs=outputs)

    def _size(self, inputs: Mapping[str, Array]) -> int:
        """The length of a run; refuses inputs that disagree (``shape-conflict``), and lengths that
        the program does not have (``shape-bounds``)."""
        assert self.length is not None
        sizes = [
            (np.shape(inputs[name])[axis], name)
            for name, axes in self.length.inputs.items()
            for axis in axes
            if name in inputs and axis < np.ndim(inputs[name])
        ]
        for size, name in sizes:
            if size != sizes[0][0]:
                reason = f"is {size} long, and {sizes[0][0]} in input {sizes[0][1]!r}"
                raise refuse("shape-conflict", reason, name)
            if not 1 <= size <= self.length.longest:
                bounds = f"1 to {self.length.longest}"
                raise refuse("shape-bounds", f"size {size} is outside {bounds}", name)
        return sizes[0][0] if sizes else self.length.longest

    @property
    def instructions(self) -> int:
        """The number of launches of a run."""
        return len(self.launches)

    @cached_property
    def functions(self) -> Mapping[str, Kernel]:
        """The kernel functions, built when first asked for."""
        folder = self.parts.directory / FOLDER
        names = dict.fromkeys(launch.function for launch in self.launches)
        return build_all({name: (folder / f"{name}.c").read_text() for name in names}, self.core)

    def prepare(self) -> None:
        """Build the kernels and the host's."""
        super().prepare()
        _ = self.functions

    def times(self) -> Times:
        """The times of a run of the last length: kernels one after the other, launches, too."""
        rows = self.parts.file.kernels
        cycles = np.zeros(len(rows))
        moved = np.zeros(len(rows), np.int64)
        busy: dict[str, float] = {engine.name: 0.0 for engine in self.parts.machine.engines}
        for number, row in enumerate(rows):
            for whole in self.launches[row.start : row.end]:
                launch = whole.at(self.size)
                cycles[number] += launch.cycles
                moved[number] += launch.main_bytes
                for pipe, count in launch.busy.items():
                    busy[pipe.lower()] = busy.get(pipe.lower(), 0.0) + count
        ends = np.cumsum(cycles)
        total = int(ends[-1]) if ends.size else 0
        return Times(total, cycles, ends - cycles, ends, moved, int(moved.sum()), busy)

    def begin(self) -> None:
        """Every kernel brings memories of its own."""

    def execute(self, kernel: KernelRow) -> None:
        """Run the launches of a kernel, on copies of its operands with room after each."""
        op = self.operations[kernel.symbol]
        values = [strided(value, self.arenas)[0] for value in op.inputs]
        buffers: dict[tuple[str, int], NDArray[np.uint8]] = {}
        for launch in self.launches[kernel.start : kernel.end]:
            arguments = {
                argument.name: self._memory(argument, values, buffers)
                for argument in launch.arguments
            }
            outcome = self.functions[launch.function].run(
                arguments,
                order=self.order,
                length=self.size if launch.longest else None,
                blocks=launch.blocks,
                poison=byte_of(self.seed, POISON),
            )
            if outcome.problems:
                raise refuse("simulate-race", outcome.problems[0], launch.function)
        result, _ = strided(op.result, self.arenas)
        written = buffers.get(("result", 0))
        if written is None or written.size < result.nbytes:
            raise refuse("package-invalid", f"no launch writes {kernel.symbol}")
        result[...] = written[: result.nbytes].view(result.dtype).reshape(result.shape)

    def _memory(
        self,
        argument: Argument,
        values: list[Array],
        buffers: dict[tuple[str, int], NDArray[np.uint8]],
    ) -> NDArray[Any]:
        """The device memory of an argument; what is not written yet shows, as in the core."""
        if argument.kind == "constant":
            return self.parts.image[argument.number : argument.number + argument.bytes]
        key = argument.kind, argument.number
        if key not in buffers:
            buffers[key] = np.full(argument.bytes, byte_of(self.seed, POISON), np.uint8)
            if argument.kind == "operand":
                if argument.number >= len(values):
                    raise refuse("package-invalid", "a kernel has no such operand")
                data = np.frombuffer(
                    np.ascontiguousarray(values[argument.number]).tobytes(), np.uint8
                )
                if data.size > argument.bytes:
                    raise refuse(
                        "package-invalid", f"operand {argument.name} has {data.size} bytes"
                    )
                buffers[key][: data.size] = data
        return buffers[key]

    def events(self) -> Events:
        """The commands of the core that computes the first block of each launch."""
        return events_of(self)


def _extended(array: Array, axes: tuple[int, ...], length: Length) -> Array:
    """An input as long as the program's, with zeros after its end."""
    missing = [length.longest - array.shape[n] if n in axes else 0 for n in range(array.ndim)]
    return np.pad(array, [(0, count) for count in missing])


def _ended(array: Array, axes: tuple[int, ...], size: int) -> Array:
    """The first indices of some axes."""
    kept = tuple(slice(size if n in axes else None) for n in range(array.ndim))
    return np.ascontiguousarray(array[kept])
