"""Runs a package on the simulated machine: values and times from the same words."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.arenas import read_value, write_value
from tilewright.graph.dialect import KernelOp
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir import Operation, SSAValue
from tilewright.targets.base import (
    HostStep,
    KernelProfile,
    Profile,
    Runner,
    RunResult,
    TensorInfo,
    Watch,
)
from tilewright.targets.cambricon.lowering.network import CONSTANTS
from tilewright.targets.cambricon.package import Package
from tilewright.targets.cambricon.simulate import Result, Simulator
from tilewright.targets.cambricon.simulate.timeline import write_events
from tilewright.targets.generic.host import computes, interpreted, load_kernels
from tilewright.types import Array, element_dtype, shape_of, tensor_type


class CambriconRunner(Runner):
    """A package on the simulated machine."""

    def __init__(self, package: Package) -> None:
        self.package = package
        file, network = package.file, package.network
        self.inputs = tuple(_info(name, value) for name, value in network.inputs)
        self.outputs = tuple(_info(name, value) for name, value in network.outputs)
        end = file.bases[CONSTANTS] + package.constants.size
        self.main = np.zeros(end, np.uint8)
        self.main[: package.weights.size] = package.weights
        self.main[file.bases[CONSTANTS] :] = package.constants
        self.arenas = {
            name: self.main[file.bases[name] : file.bases[name] + file.arenas[name]]
            for name in (WEIGHTS, ACTIVATIONS)
        }
        self._ops: list[Operation] = list(network.block.ops)
        wanted = {number for kind, number in file.steps if kind == "host"}
        if any(number >= len(self._ops) for number in wanted):
            raise refuse("package-invalid", "a step names no operation of the network")
        self.exact = not any(
            isinstance(op := self._ops[number], KernelOp) and computes(op) for number in wanted
        )

    @cached_property
    def host(self) -> dict[int, HostStep]:
        """The host's steps by the operations' place in the network; C is built when first asked."""
        numbers = [number for kind, number in self.package.file.steps if kind == "host"]
        ops = {number: self._ops[number] for number in numbers}
        symbols = {n: op.symbol.data for n, op in ops.items() if isinstance(op, KernelOp)}
        compiled: dict[str, HostStep] = {}
        if any(computes(op) for op in ops.values()):
            compiled = load_kernels(self.package.directory)
        return {n: compiled.get(symbols.get(n, "")) or interpreted(op) for n, op in ops.items()}

    def prepare(self) -> None:
        """Build the host's kernels."""
        _ = self.host

    @cached_property
    def kernels(self) -> Array:
        """The kernel of every word."""
        found = np.zeros(self.package.words.size, np.int64)
        for number, row in enumerate(self.package.file.kernels):
            found[row.start : row.end] = number
        return found

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        trace: Path | None = None,
        check_races: bool = False,
        watch: Watch | None = None,
    ) -> RunResult:
        """Run once; see the base class.

        The queue checks dependences, so that no order of the units can be wrong: ``check_races``
        has nothing to refuse.
        """
        self.check_inputs(inputs)
        for name, value in self.package.network.inputs:
            write_value(value, self.arenas, np.asarray(inputs[name]))
        rows = self.package.file.kernels
        simulator = Simulator(
            self.package.words,
            self.package.machine,
            self.main,
            kernels=self.kernels,
            events=trace is not None,
            label=self._label,
        )
        seconds: dict[int, float] = {}
        host = self.host
        for kind, number in self.package.file.steps:
            if kind == "words":
                simulator.run(rows[number].start, rows[number].end)
            else:
                begin = time.perf_counter()
                host[number](self.arenas)
                seconds[number] = time.perf_counter() - begin
            if watch is not None:
                watch(self._symbol(kind, number), self.arenas)
        result = simulator.result()
        # Copies: the next run writes the same bytes.
        outputs = {
            name: read_value(value, self.arenas).copy()
            for name, value in self.package.network.outputs
        }
        if trace is not None:
            write_events(
                trace,
                result,
                self.package.words,
                self.package.machine,
                kernels=[row.symbol for row in rows],
                nodes=[row.nodes for row in rows],
            )
        return RunResult(outputs, self._profile(result, seconds))

    def _label(self, word: int) -> str:
        """A word by its kernel, for messages."""
        rows = self.package.file.kernels
        row = next((row for row in rows if row.start <= word < row.end), None)
        return f"word {word}" if row is None else f"{row.symbol}: word {word - row.start}"

    def _symbol(self, kind: str, number: int) -> str:
        """The kernel that a step runs; "" for an operation outside kernels."""
        if kind == "words":
            return self.package.file.kernels[number].symbol
        op = self._ops[number]
        return op.symbol.data if isinstance(op, KernelOp) else ""

    def _profile(self, result: Result, seconds: Mapping[int, float]) -> Profile:
        file = self.package.file
        kernels: list[KernelProfile] = []
        reached = 0.0
        for kind, number in file.steps:
            if kind == "words":
                row = file.kernels[number]
                start, end = float(result.kernel_start[number]), float(result.kernel_end[number])
                known = np.isfinite(start)
                own = max(end - reached, 0.0) if known else 0.0
                reached += own
                kernels.append(
                    KernelProfile(
                        row.symbol,
                        row.nodes,
                        cycles=own,
                        start=start if known else 0.0,
                        end=end if known else 0.0,
                        dram_bytes=int(result.kernel_bytes[number]),
                    )
                )
            elif isinstance(op := self._ops[number], KernelOp):
                nodes = tuple(dict.fromkeys(o.node_name for o in op.operations if o.node_name))
                kernels.append(
                    KernelProfile(op.symbol.data, nodes, seconds=seconds[number], on_host=True)
                )
        total = max(result.cycles, 1.0)
        return Profile(
            kernels=tuple(kernels),
            cycles=round(result.cycles),
            clock_hz=self.package.machine.clock_hz,
            dram_bytes=result.main_bytes,
            peak_memory_bytes=sum(file.arenas.values()) + self.package.constants.size,
            engines={unit: busy / total for unit, busy in result.busy.items()},
        )


def _info(name: str, value: SSAValue) -> TensorInfo:
    dtype = element_dtype(tensor_type(value).element_type)
    return TensorInfo(name, shape_of(value), str(dtype))
