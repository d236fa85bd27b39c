"""Runs the steps of a package: the words of a simulated machine and the host's part, in turn.

A machine says how its words are simulated; inputs, outputs, host steps and profiles are the same
for all.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.host.steps import computes, interpreted, load_kernels
from tilewright.codegen.program.concurrent import Step, elapsed, step_of
from tilewright.codegen.program.counters import counters_of
from tilewright.codegen.program.files import KernelRow, ProgramParts, StayingResult
from tilewright.codegen.program.interface import (
    HostStep,
    KernelProfile,
    Profile,
    Runner,
    RunResult,
    TensorInfo,
    Watch,
)
from tilewright.codegen.program.rounds import LoopStep, Opener, later
from tilewright.codegen.words import Instruction, Program
from tilewright.errors import refuse
from tilewright.graph.arenas import read_value, write_value
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations.loops import loop_in
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir import Operation, SSAValue
from tilewright.ir.types import Array, element_dtype, shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.numerics.poison import spoil
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.races import RaceReport, race_error
from tilewright.simulate.timing import Timeline, simulate
from tilewright.simulate.trace import Events, Rounds, write_trace


@dataclass(frozen=True)
class Times:
    """The cycles and bytes of a simulation; arrays have a row per kernel with instructions."""

    cycles: int
    kernel_cycles: NDArray[np.float64]
    """Cycles by which each kernel moved the end of all before it."""
    kernel_start: NDArray[np.float64]
    kernel_end: NDArray[np.float64]
    kernel_bytes: NDArray[np.int64]
    """Bytes of each kernel through main memory."""
    main_bytes: int
    busy: Mapping[str, float]
    """Cycles in which each engine was busy."""

    @classmethod
    def of(cls, timeline: Timeline, machine: Machine) -> Times:
        """Return the times in a timeline of the timing core."""
        return cls(
            timeline.cycles,
            timeline.kernel_cycles,
            timeline.kernel_start,
            timeline.kernel_end,
            timeline.kernel_bytes,
            timeline.main_bytes,
            {e.name: float(busy) for e, busy in zip(machine.engines, timeline.busy, strict=True)},
        )


class SteppedRunner(Runner):
    """A package whose words are simulated, one run at a time."""

    arenas: Mapping[str, NDArray[np.uint8]]
    """The arenas' bytes by name."""
    spoils = True
    traced = False
    """True if the run that begins is asked for a timeline."""

    def __init__(self, parts: ProgramParts) -> None:
        self.parts = parts
        activations = np.zeros(parts.file.arenas[ACTIVATIONS], np.uint8)
        self.arenas = {WEIGHTS: parts.weights, ACTIVATIONS: activations}
        network = parts.network
        self.inputs = tuple(_info(name, value) for name, value in network.inputs)
        self.outputs = tuple(_info(name, value) for name, value in network.outputs)
        self._ops: list[Operation] = list(network.block.ops)
        wanted = {number for kind, number in parts.file.steps if kind == "host"}
        if any(number >= len(self._ops) for number in wanted):
            raise refuse("package-invalid", "a step names no operation of the network")
        self.loops: dict[int, LoopStep] = {}
        """The loops by the operations' place in the network, once they are opened."""
        self.exact = not any(
            isinstance(op := self._ops[number], KernelOp) and computes(op) and loop_in(op) is None
            for number in wanted
        )

    def open_loops(self, opener: Opener) -> None:
        """Open the programs of loops, which lie below this one's folder."""
        for kind, number in self.parts.file.steps:
            op = self._ops[number]
            if kind == "host" and isinstance(op, KernelOp) and (loop := loop_in(op)) is not None:
                step = LoopStep(op, loop, self.parts.directory, opener)
                self.loops[number] = step
                self.exact = self.exact and step.runner.exact

    @abstractmethod
    def begin(self) -> None:
        """Begin a run: memories on the chip hold what ``seed`` says."""

    def lose_chip(self) -> None:
        """Fill the memories on the chip with a pattern: the body of a loop has run there. By
        default kernels find nothing there, so that nothing is lost."""
        return

    @abstractmethod
    def execute(self, kernel: KernelRow) -> None:
        """Execute the words of a kernel; raises TilewrightError."""

    def memory(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a memory on the chip in which results stay from kernel to kernel."""
        raise refuse("package-invalid", f"no results stay in {name}")

    def reveal(self, result: StayingResult) -> None:
        """Copy a result that stays on the chip to its place among the activations."""
        content = self.memory(result.memory)[result.address : result.address + result.bytes]
        self.arenas[ACTIVATIONS][result.place : result.place + result.bytes] = content

    @abstractmethod
    def times(self) -> Times:
        """The times of a run, after all its kernels where they tell."""

    @abstractmethod
    def events(self) -> Events:
        """The events of a run that a trace shows."""

    def write_trace(self, path: Path) -> None:
        """Write the timeline of a run for Perfetto."""
        spans, commands, label = self.events()
        rows = self.parts.file.kernels
        loops: list[Rounds] = []
        if self.loops:
            offsets = np.zeros(max(len(rows), spans.kernel_end.size))
            for number, begin in self._in_turn(spans.kernel_end, offsets):
                loops.append(self.loops[number].bar(begin))
            spans = later(spans, commands, offsets)
        write_trace(
            path,
            spans,
            commands,
            self.parts.machine,
            kernels=[row.symbol for row in rows],
            nodes=[row.nodes for row in rows],
            label=label,
            counters=counters_of(
                spans, commands, self.parts.machine, [row.symbol for row in rows], self.planned
            ),
            loops=loops,
        )

    def _in_turn(
        self, ends: NDArray[np.float64], offsets: NDArray[np.float64]
    ) -> Iterator[tuple[int, float]]:
        """Yield each loop's number and first cycle, where the program's own times have the
        ``ends`` of its kernels; ``offsets`` are filled with what loops add before each of them."""
        looped = last = 0.0
        for kind, number in self.parts.file.steps:
            if kind == "words":
                offsets[number] = looped
                if number < ends.size:
                    last = max(last, float(ends[number]) + looped)
            elif number in self.loops:
                yield number, last
                looped += self.loops[number].cycles
                last += self.loops[number].cycles

    def timed(self) -> Profile:
        """The profile of any run. Nothing is run: the host's time is known only where the machine
        describes its host."""
        told = self.parts.file.host_seconds
        numbers = {number for kind, number in self.parts.file.steps if kind == "host"}
        return self.profile(self.times(), told if numbers <= told.keys() else None)

    def refuse_races(self) -> None:
        """Raise TilewrightError (``simulate-race``) if the program lacks a wait.

        A machine whose hardware orders all that depends on one another has nothing to refuse.
        """
        return

    @cached_property
    def host(self) -> dict[int, HostStep]:
        """The host's steps by the operations' place in the network; C is built when first asked."""
        numbers = [number for kind, number in self.parts.file.steps if kind == "host"]
        ops = {number: self._ops[number] for number in numbers}
        symbols = {n: op.symbol.data for n, op in ops.items() if isinstance(op, KernelOp)}
        compiled: dict[str, HostStep] = {}
        if any(computes(op) and loop_in(op) is None for op in ops.values()):
            compiled = load_kernels(self.parts.directory)
        steps: dict[int, HostStep] = {}
        for number, op in ops.items():
            loop = self.loops.get(number)
            if loop is not None:
                steps[number] = lambda arenas, loop=loop: loop(arenas, self.seed)
            else:
                steps[number] = compiled.get(symbols.get(number, "")) or interpreted(op)
        return steps

    def build(self) -> None:
        """Build the host's kernels."""
        _ = self.host
        for loop in self.loops.values():
            loop.runner.build()

    def prepare(self) -> None:
        """Build what a run builds otherwise, that of loops too."""
        super().prepare()
        for loop in self.loops.values():
            loop.runner.prepare()

    @property
    @abstractmethod
    def instructions(self) -> int:
        """The number of instructions in the program."""

    @cached_property
    def kernels(self) -> NDArray[np.int64]:
        """The kernel of every instruction."""
        numbers = np.zeros(self.instructions, np.int64)
        for number, row in enumerate(self.parts.file.kernels):
            numbers[row.start : row.end] = number
        return numbers

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        trace: Path | None = None,
        check_races: bool = False,
        watch: Watch | None = None,
        profile: bool = False,
    ) -> RunResult:
        """Run once; see the base class."""
        del profile  # Simulated times are measured always.
        self.check_inputs(inputs)
        if check_races:
            self.refuse_races()
            for loop in self.loops.values():
                loop.check_races = True
        network, file = self.parts.network, self.parts.file
        spoil(self.arenas[ACTIVATIONS], self.seed)
        for name, value in network.inputs:
            write_value(value, self.arenas, np.asarray(inputs[name]))
        self.traced = trace is not None
        self.begin()
        seconds: dict[int, float] = {}
        host = self.host
        for kind, number in file.steps:
            if kind == "words":
                self.execute(file.kernels[number])
            else:
                begin = time.perf_counter()
                host[number](self.arenas)
                taken = time.perf_counter() - begin
                if number in self.loops:
                    taken = self.loops[number].host_seconds
                    self.lose_chip()
                seconds[number] = file.host_seconds.get(number, taken)
            if watch is not None:
                stays = file.kernels[number].stays if kind == "words" else None
                if stays is not None:
                    self.reveal(stays)
                watch(self._symbol(kind, number), self.arenas)
        # Copies: the next run writes the same bytes.
        outputs = {name: read_value(value, self.arenas).copy() for name, value in network.outputs}
        if trace is not None:
            self.write_trace(trace)
        measured = self.profile(self.times(), seconds)
        return RunResult(outputs, lambda: measured)

    def profile(self, times: Times, seconds: Mapping[int, float] | None) -> Profile:
        """The profile of a run; ``seconds`` are those of the host's steps by their numbers, None
        if they were not measured."""
        file = self.parts.file
        kernels: list[KernelProfile] = []
        looped = sum(loop.cycles for loop in self.loops.values())
        offsets = np.zeros(max(len(file.kernels), times.kernel_end.size))
        begins = dict(self._in_turn(times.kernel_end, offsets))
        for kind, number in file.steps:
            if kind == "words":
                kernels.append(self._kernel(times, number, float(offsets[number])))
            elif number in self.loops:
                kernels.extend(self.loops[number].kernels(begins[number]))
            elif isinstance(op := self._ops[number], KernelOp):
                nodes = tuple(dict.fromkeys(o.node_name for o in op.operations if o.node_name))
                taken = None if seconds is None else seconds[number]
                kernels.append(KernelProfile(op.symbol.data, nodes, seconds=taken, on_host=True))
        total = max(times.cycles + looped, 1)
        busy, main_bytes, memory = dict(times.busy), times.main_bytes, 0
        for loop in self.loops.values():
            body = loop.profile
            for name, share in body.engines.items():
                busy[name] = busy.get(name, 0.0) + share * loop.cycles
            main_bytes += loop.loop.count * (body.dram_bytes or 0)
            memory += body.peak_memory_bytes
        return Profile(
            kernels=tuple(kernels),
            cycles=times.cycles + looped,
            clock_hz=self.parts.machine.clock_hz,
            dram_bytes=main_bytes,
            host_seconds=None if seconds is None else sum(seconds.values()),
            elapsed_seconds=None if seconds is None else self._elapsed(times, seconds),
            peak_memory_bytes=sum(file.arenas.values()) + self.parts.image.size + memory,
            engines={name: cycles / total for name, cycles in busy.items()},
        )

    def _elapsed(self, times: Times, seconds: Mapping[int, float]) -> float:
        """Return a run's seconds, with the host and the accelerator working side by side."""
        file, clock = self.parts.file, self.parts.machine.clock_hz
        places = {op.symbol.data: n for n, op in enumerate(self._ops) if isinstance(op, KernelOp)}
        steps: list[Step] = []
        for kind, number in file.steps:
            if kind == "host":
                loop = self.loops.get(number)
                taken = 0.0 if loop is None else loop.cycles / clock
                steps.append(step_of(self._ops[number], True, seconds[number] + taken))
                continue
            moved = times.kernel_cycles
            taken = float(moved[number]) / clock if number < moved.size else 0.0
            op = self._ops[places[file.kernels[number].symbol]]
            steps.append(step_of(op, False, taken))
        return elapsed(steps)

    def _kernel(self, times: Times, number: int, later: float) -> KernelProfile:
        row = self.parts.file.kernels[number]
        # Kernels after the last one that has commands have no times.
        if number >= times.kernel_cycles.size:
            return KernelProfile(row.symbol, row.nodes, 0.0, 0.0, 0.0, 0)
        return KernelProfile(
            row.symbol,
            row.nodes,
            cycles=float(times.kernel_cycles[number]),
            start=later + float(times.kernel_start[number]),
            end=later + float(times.kernel_end[number]),
            dram_bytes=int(times.kernel_bytes[number]),
        )

    def _symbol(self, kind: str, number: int) -> str:
        """The kernel that a step runs; "" for an operation outside kernels."""
        if kind == "words":
            return self.parts.file.kernels[number].symbol
        op = self._ops[number]
        return op.symbol.data if isinstance(op, KernelOp) else ""


class TimedRunner(SteppedRunner):
    """A package whose times follow from its words alone, by the timing core."""

    @cached_property
    @abstractmethod
    def commands(self) -> TimedArray:
        """The program's instructions as the timing core takes them."""

    @abstractmethod
    def mnemonic(self, command: int) -> str:
        """The name of an instruction, for traces."""

    @cached_property
    def timeline(self) -> Timeline:
        """Simulated times; they do not depend on the inputs."""
        return simulate(self.commands, self.parts.machine, label=lambda row: f"instruction {row}")

    def times(self) -> Times:
        """The times of any run."""
        return Times.of(self.timeline, self.parts.machine)

    def events(self) -> Events:
        """The events of any run: it has the same times."""
        return self.timeline, self.commands, self.mnemonic


class WordRunner(TimedRunner):
    """A package of decoded words, one instruction each."""

    def __init__(self, parts: ProgramParts, program: Program[Instruction]) -> None:
        super().__init__(parts)
        self._program = program

    @property
    def instructions(self) -> int:
        """The number of instructions in the program."""
        return self._program.size

    def mnemonic(self, command: int) -> str:
        """The name of an instruction."""
        return self._program.mnemonic(command)

    def refuse_races_of(self, report: RaceReport) -> None:
        """Raise TilewrightError (``simulate-race``) for what a search for races has found."""
        if not report.clean:
            rows = self.parts.file.kernels
            raise race_error(report, [rows[k].symbol for k in self.kernels.tolist()])


def _info(name: str, value: SSAValue) -> TensorInfo:
    dtype = element_dtype(tensor_type(value).element_type)
    return TensorInfo(name, shape_of(value), str(dtype))
