"""Runs a package's kernels on the host core: values exactly, times as far as pipes are counted.

The cycles of a kernel are those of its busiest pipe, from what the core counts: products and vector
repeats as the instructions take them, copies at the rates of the machine. Latencies, and what pipes
wait for one another, are not in them: they are a lower bound, no simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.graph.arenas import read_value, write_value
from tilewright.graph.dialect import KernelOp
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir.types import Array, element_dtype, shape_of, tensor_type
from tilewright.targets.ascend.host import Kernel, build_all
from tilewright.targets.ascend.lower import Argument, Launch
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.package import FOLDER, core_of
from tilewright.targets.generic.program_file import ProgramParts
from tilewright.targets.generic.stepped import Simulation, SteppedRunner, Times

ENGINES: tuple[str, ...] = ("m", "v", "mte1", "mte2", "mte3")


class AscendRunner(SteppedRunner):
    """A package on the host core."""

    tolerance = 4e-3
    """Products are of half precision, whose roundings are up to 2 ** -11 = 5e-4 of a value, in
    operands, weights, biases and results."""

    def __init__(self, parts: ProgramParts, launches: tuple[Launch, ...]) -> None:
        super().__init__(parts)
        self.launches = launches
        self.core: DaVinci = core_of(parts.machine)
        self.order = 0
        """The order in which commands run; see codegen/c/shim/queues.h."""
        activations = np.zeros(parts.file.arenas[ACTIVATIONS], np.uint8)
        self.arenas = {WEIGHTS: parts.weights, ACTIVATIONS: activations}
        self.exact = False
        self.operations = {
            op.symbol.data: op for op in parts.network.block.ops if isinstance(op, KernelOp)
        }

    @property
    def instructions(self) -> int:
        """Number of launches."""
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

    def simulation(self, *, traced: bool) -> Simulation:
        """A run on the host core."""
        if traced:
            raise refuse("profile-missing", "the host core keeps no timeline of DaVinci kernels")
        return _Run(self)


class _Run:
    def __init__(self, runner: AscendRunner) -> None:
        self.runner = runner
        count = len(runner.parts.file.kernels)
        self.cycles = np.zeros(count)
        self.bytes = np.zeros(count, np.int64)
        self.busy: dict[str, float] = dict.fromkeys(ENGINES, 0.0)

    def run(self, start: int, end: int) -> None:
        """Run the launches of a kernel, on copies of its operands with room behind."""
        runner, file = self.runner, self.runner.parts.file
        number = next(
            n for n, row in enumerate(file.kernels) if (row.start, row.end) == (start, end)
        )
        op = runner.operations.get(file.kernels[number].symbol)
        if op is None:
            raise refuse("package-invalid", f"there is no kernel {file.kernels[number].symbol}")
        values = [read_value(value, runner.arenas) for value in op.inputs]
        buffers: dict[tuple[str, int], NDArray[np.uint8]] = {}
        for launch in runner.launches[start:end]:
            arguments = {one.name: self._memory(one, values, buffers) for one in launch.arguments}
            outcome = runner.functions[launch.function].run(arguments, order=runner.order)
            if outcome.problems:
                raise refuse("simulate-race", outcome.problems[0], launch.function)
            self._count(number, outcome.counts)
        kind = element_dtype(tensor_type(op.result).element_type)
        shape = shape_of(op.result)
        data = buffers["result", 0][: int(np.prod(shape)) * kind.itemsize]
        write_value(op.result, runner.arenas, data.view(kind).reshape(shape))

    def _memory(
        self,
        one: Argument,
        values: list[Array],
        buffers: dict[tuple[str, int], NDArray[np.uint8]],
    ) -> NDArray[Any]:
        """The device memory of an argument; what is not written yet is NaN."""
        if one.kind == "constant":
            return self.runner.parts.image[one.number : one.number + one.bytes]
        key = one.kind, one.number
        if key not in buffers:
            buffers[key] = np.full(one.bytes, 0xFF, np.uint8)
            if one.kind == "operand":
                if one.number >= len(values):
                    raise refuse("package-invalid", "a kernel has no such operand")
                data = np.frombuffer(np.ascontiguousarray(values[one.number]).tobytes(), np.uint8)
                buffers[key][: data.size] = data
        return buffers[key]

    def _count(self, number: int, counts: Mapping[str, int]) -> None:
        paths = self.runner.core.paths
        busy = {
            "m": float(counts["cube_cycles"]),
            "v": float(counts["vector_cycles"]),
            # Loads to L0A and L0B are counted together: at the faster rate.
            "mte1": counts["cbuf_reads"] / paths["cbuf", "ca"].value,
            "mte2": counts["gm_reads"] / paths["gm", "ub"].value,
            "mte3": counts["gm_writes"] / paths["ub", "gm"].value,
        }
        for name, cycles in busy.items():
            self.busy[name] += cycles
        self.cycles[number] += max(busy.values())
        self.bytes[number] += counts["gm_reads"] + counts["gm_writes"]

    def reveal(self, held: tuple[int, int, int]) -> None:
        """No result stays on the chip."""

    def times(self) -> Times:
        """What the busiest pipes took."""
        ends = np.cumsum(self.cycles)
        return Times(
            int(ends[-1]) if ends.size else 0,
            self.cycles,
            ends - self.cycles,
            ends,
            self.bytes,
            int(self.bytes.sum()),
            self.busy,
        )

    def write_trace(self, path: Path) -> None:
        """There is none."""
