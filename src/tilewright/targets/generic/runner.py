"""Runs a package of instruction words: values from the functional simulator, times from timing."""

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
from tilewright.simulate.timing import Timeline
from tilewright.simulate.trace import write_trace
from tilewright.targets.base import (
    HostStep,
    KernelProfile,
    Profile,
    Runner,
    RunResult,
    TensorInfo,
    Watch,
)
from tilewright.targets.generic.disassemble import disassemble
from tilewright.targets.generic.encode import Program, decode
from tilewright.targets.generic.fields import Column
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.host import (
    computes,
    interpreted,
    load_kernels,
)
from tilewright.targets.generic.package import Package, remarks_of
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timing import check_races, race_error, time_program, timed_program
from tilewright.types import Array, element_dtype, shape_of, tensor_type


class InstructionRunner(Runner):
    """A package on the simulated machine."""

    def __init__(self, package: Package) -> None:
        self.package = package
        file, network = package.file, package.network
        self.inputs = tuple(_info(name, value) for name, value in network.inputs)
        self.outputs = tuple(_info(name, value) for name, value in network.outputs)
        self.program: Program = decode(package.instructions, package.words)
        activations = np.zeros(file.arenas[ACTIVATIONS], np.uint8)
        self.arenas = {WEIGHTS: package.weights, ACTIVATIONS: activations}
        images = [*self.arenas.items(), (TABLES, package.tables)]
        self._simulator = Simulator(
            self.program, [(file.bases[name], data) for name, data in images if data.size]
        )
        ops: list[Operation] = list(network.block.ops)
        wanted = {number for kind, number in file.steps if kind == "host"}
        if any(number >= len(ops) for number in wanted):
            raise refuse("package-invalid", "a step names no operation of the network")
        self._ops = ops
        self.exact = not any(
            isinstance(ops[number], KernelOp) and computes(ops[number]) for number in wanted
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

    @property
    def instructions(self) -> int:
        """Number of instructions."""
        return self.program.size

    @cached_property
    def kernels(self) -> Column:
        """The kernel of every instruction."""
        found = np.zeros(self.program.size, np.int64)
        for number, row in enumerate(self.package.file.kernels):
            found[row.start : row.end] = number
        return found

    @cached_property
    def timeline(self) -> Timeline:
        """Simulated times; they do not depend on the inputs."""
        return time_program(self.program, self.kernels)

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        trace: Path | None = None,
        check_races: bool = False,
        watch: Watch | None = None,
    ) -> RunResult:
        """Run once; see the base class."""
        self.check_inputs(inputs)
        if check_races:
            self.refuse_races()
        for name, value in self.package.network.inputs:
            write_value(value, self.arenas, np.asarray(inputs[name]))
        seconds: dict[int, float] = {}
        host = self.host
        for kind, number in self.package.file.steps:
            if kind == "words":
                row = self.package.file.kernels[number]
                self._simulator.run(row.start, row.end)
            else:
                begin = time.perf_counter()
                host[number](self.arenas)
                seconds[number] = time.perf_counter() - begin
            if watch is not None:
                watch(self._symbol(kind, number), self.arenas)
        # Copies: the next run writes the same bytes.
        outputs = {
            name: read_value(value, self.arenas).copy()
            for name, value in self.package.network.outputs
        }
        if trace is not None:
            self._write_trace(trace)
        return RunResult(outputs, self._profile(seconds))

    def timed(self) -> Profile:
        """The profile of any run; the host's kernels took no time."""
        return self._profile({number: 0.0 for _, number in self.package.file.steps})

    def _symbol(self, kind: str, number: int) -> str:
        """The kernel that a step runs; "" for an operation outside kernels."""
        if kind == "words":
            return self.package.file.kernels[number].symbol
        op = self._ops[number]
        return op.symbol.data if isinstance(op, KernelOp) else ""

    def refuse_races(self) -> None:
        """Raise TilewrightError (``simulate-race``) if the program lacks a wait."""
        report = check_races(self.program, self.kernels)
        if report.races or report.unwritten:
            rows = self.package.file.kernels
            raise race_error(report, [rows[k].symbol for k in self.kernels.tolist()])

    def listing(self) -> str:
        """The disassembly, with kernels and nodes as remarks."""
        rows = self.package.file.kernels
        return disassemble(self.package.instructions, self.package.words, remarks_of(rows))

    def _profile(self, seconds: Mapping[int, float]) -> Profile:
        timeline, file = self.timeline, self.package.file
        machine = self.package.instructions.machine
        own = timeline.kernel_cycles
        kernels: list[KernelProfile] = []
        for kind, number in file.steps:
            if kind == "words":
                row = file.kernels[number]
                # Kernels behind the last one that has commands have no times.
                known = number < own.size
                kernels.append(
                    KernelProfile(
                        row.symbol,
                        row.nodes,
                        cycles=float(own[number]) if known else 0.0,
                        start=float(timeline.kernel_start[number]) if known else 0.0,
                        end=float(timeline.kernel_end[number]) if known else 0.0,
                        dram_bytes=int(timeline.kernel_bytes[number]) if known else 0,
                    )
                )
            elif isinstance(op := self._ops[number], KernelOp):
                nodes = tuple(dict.fromkeys(o.node_name for o in op.operations if o.node_name))
                kernels.append(
                    KernelProfile(op.symbol.data, nodes, seconds=seconds[number], on_host=True)
                )
        total = max(timeline.cycles, 1)
        return Profile(
            kernels=tuple(kernels),
            cycles=timeline.cycles,
            clock_hz=machine.clock_hz,
            dram_bytes=timeline.main_bytes,
            peak_memory_bytes=sum(file.arenas.values()) + self.package.tables.size,
            engines={
                engine.name: float(busy) / total
                for engine, busy in zip(machine.engines, timeline.busy, strict=True)
            },
        )

    def _write_trace(self, path: Path) -> None:
        rows = self.package.file.kernels
        which, _ = self.program.place
        names = [group.instruction.mnemonic for group in self.program.groups]
        write_trace(
            path,
            self.timeline,
            timed_program(self.program, self.kernels),
            self.package.instructions.machine,
            kernels=[row.symbol for row in rows],
            nodes=[row.nodes for row in rows],
            label=lambda command: names[int(which[command])],
        )


def _info(name: str, value: SSAValue) -> TensorInfo:
    dtype = element_dtype(tensor_type(value).element_type)
    return TensorInfo(name, shape_of(value), str(dtype))
