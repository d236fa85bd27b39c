"""Tensors that stay on the chip from the first kernel that reads them to the last.

The branches of a network read one tensor (siblings: DNNVM, section 4.3), each with tiles of its
own. Where a machine's memory ``shares`` tensors, such a one may lie there whole for the time of
all its readers: the first loads it, the others find it, and every tile is a box of it
(``Schedule.stays``). All kernels of that time are planned for the memory that is left.

Before::

    k1: load x, tile by tile, compute     k2: load x, tile by tile, compute     k3: load x, ...

After::

    k1: load x, compute                   k2: compute                           k3: compute

Kernels are groups of the fusion search as well as single ones. Tensors are gone through in the
order of the network; each stays where all kernels of its time, in a row with their neighbours, are
faster so by the target's simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.ir import SSAValue
from tilewright.machine import Machine, Memory
from tilewright.machine.capabilities import keeps_inputs
from tilewright.memory import align_up
from tilewright.network.candidates import Trials, sizes_of
from tilewright.network.fusion.plan import StayingTensor
from tilewright.network.resident_values import HeldKernel
from tilewright.planning import Plan, Planner
from tilewright.planning.bounds import main_bandwidth
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.held import holding
from tilewright.planning.schedule import Schedule

WORTH = 1e-3
"""Part of the cycles of kernels in a row that the loads of a tensor must take, but for one, for it
to be tried: planning for the memory that is left takes time."""


@dataclass
class Known:
    """Plans and times, for kernels that are alike, of searches for one machine."""

    planners: dict[str, Planner] = field(default_factory=dict[str, Planner])
    """By the memory that is cut, and what is left of it."""
    times: dict[object, float] = field(default_factory=dict[object, float])
    """Cycles of kernels in a row."""


@dataclass(frozen=True)
class HeldInputs:
    """What a search has found."""

    kernels: dict[str, HeldKernel] = field(default_factory=dict[str, HeldKernel])
    """The kernels that run while a tensor stays, by their symbols."""
    tensors: tuple[StayingTensor, ...] = ()


def hold_inputs(
    network: NetworkOp,
    machine: Machine,
    kernels: Mapping[str, Kernel],
    plans: Mapping[str, Plan],
    run_timer: RunTimer | None,
    known: Known | None = None,
) -> HeldInputs:
    """The tensors that stay, and the kernels that run at that time.

    ``kernels`` are those of the accelerator and ``plans`` their plans where nothing stays;
    ``known`` is what another search for the machine has found. Nothing stays where ``run_timer``
    cannot tell whether that pays.
    """
    if run_timer is None or not keeps_inputs(machine):
        return HeldInputs()
    trials = Trials(network, machine, kernels, plans, {})
    return _Search(machine, trials, run_timer, known or Known()).run()


@dataclass(frozen=True)
class _Shared:
    """A tensor that several kernels of a row read."""

    name: str
    readers: frozenset[str]
    memory: Memory
    bytes: int
    """That it takes of the memory, with the granules of its readers."""
    saved: float
    """Cycles of all its loads but one, at the bandwidth of main memory."""


@dataclass
class _Search:
    machine: Machine
    trials: Trials
    run_timer: RunTimer
    known: Known
    chosen: dict[str, HeldKernel] = field(default_factory=dict[str, HeldKernel])
    tensors: list[StayingTensor] = field(default_factory=list[StayingTensor])

    def run(self) -> HeldInputs:
        """All rows of kernels, one after the other."""
        for row in self._rows():
            cycles, free = sum(self.trials.plans[symbol].cycles for symbol in row), 0
            for shared in self._shared(row):
                places = [n for n, symbol in enumerate(row) if symbol in shared.readers]
                first, last = places[0], places[-1] + 1
                if first < free or shared.saved < WORTH * cycles:
                    continue
                trial = self._trial(shared, row[first:last])
                gain = self._gain(trial, row, first, last) if trial else 0.0
                if gain > 0:
                    trial = self._in_a_row(trial, row[first:last])
                    self.chosen |= trial
                    readers = (s for s, kernel in trial.items() if kernel.plan.schedule.stays)
                    self.tensors.append(
                        StayingTensor(
                            shared.name, shared.memory.name, tuple(readers), shared.bytes, gain
                        )
                    )
                    free = last
        return HeldInputs(self.chosen, tuple(self.tensors))

    def _rows(self) -> list[list[str]]:
        """Kernels that run one behind the other, the host none between them."""
        rows: list[list[str]] = [[]]
        for op in self.trials.network.block.ops:
            if isinstance(op, KernelOp) and op.symbol.data in self.trials.plans:
                rows[-1].append(op.symbol.data)
            elif isinstance(op, KernelOp):
                rows.append([])
        return rows

    def _shared(self, row: Sequence[str]) -> Iterator[_Shared]:
        """The tensors that several kernels of a row read, each in one place."""
        readers: dict[SSAValue, dict[str, Operand]] = {}
        for symbol in row:
            values = operand_values(self.trials.ops[symbol], self.trials.names)
            for operand in self.trials.kernels[symbol].inputs:
                value = values[operand.name]
                if not isinstance(value.owner, WeightOp) and self._read(symbol, operand.name):
                    readers.setdefault(value, {})[symbol] = operand
        for users in readers.values():
            (name, *_), names = {operand.name for operand in users.values()}, [*users]
            storages = [self._read(symbol, name) for symbol in names]
            memories = {memory.name: memory for memory, _ in filter(None, storages)}
            if len(names) < 2 or len(memories) > 1:
                continue
            (memory,) = memories.values()
            size = max(size for _, size in filter(None, storages))
            if size < (memory.room or 0):
                operand = users[names[0]]
                moved = operand.bytes * (len(names) - 1)
                saved = moved / main_bandwidth(self.machine)
                yield _Shared(name, frozenset(names), memory, size, saved)

    def _read(self, symbol: str, name: str) -> tuple[Memory, int] | None:
        """The memory that shares, from which a kernel reads a tensor, in one place, and the bytes
        that all of the tensor takes there."""
        reads = [
            (operand, schedule)
            for kernel, schedule in _computes(
                self.trials.kernels[symbol], self.trials.plans[symbol].schedule
            )
            for stage in kernel.stages
            for operand in stage.inputs
            if operand.name == name
        ]
        if len(reads) != 1 or reads[0][0].role != "input":
            return None
        ((operand, schedule),) = reads
        storage = self.machine.primitive(schedule.primitive).operands["input"]
        memory = self.machine.memory(storage.memory)
        size = operand.element_bytes
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            size *= align_up(extent, axis.granule(storage.multiples))
        return (memory, align_up(size, memory.granule)) if memory.own.keeps_inputs() else None

    def _trial(self, shared: _Shared, inside: Sequence[str]) -> dict[str, HeldKernel]:
        """All kernels of a tensor's time while it stays; empty if fewer than two can find it, or
        one has no room beside it."""
        left = (shared.memory.bytes or 0) - shared.bytes
        key = f"memory.{shared.memory.name}.bytes"
        machine = self.machine.with_values({key: left})
        planner = self.known.planners.setdefault(f"{key}={left}", Planner(machine))
        trial: dict[str, HeldKernel] = {}
        for symbol in inside:
            kernel = self.trials.kernels[symbol]
            if symbol in shared.readers:
                held = holding(kernel, {shared.name}, shared.memory.name)
                try:
                    planned = planner.plan(held)
                except TilewrightError:
                    pass
                else:
                    stays = replace(
                        planned, schedule=replace(planned.schedule, stays=(shared.name,))
                    )
                    trial[symbol] = HeldKernel(kernel, self.machine, stays, shared.memory.name, {})
                    continue
            try:
                planned = planner.plan(kernel)
            except TilewrightError:
                return {}
            trial[symbol] = HeldKernel(kernel, machine, planned, shared.memory.name, {})
        readers = [symbol for symbol, kernel in trial.items() if kernel.plan.schedule.stays]
        if len(readers) < 2:
            return {}
        # Planning has no loads of it at all: the first reader's count.
        first = trial[readers[0]]
        loads = int(shared.saved * main_bandwidth(self.machine) / (len(shared.readers) - 1))
        taken = self._cycles([readers[0]], trial)
        loading = replace(
            first.plan,
            predicted_cycles=first.plan.predicted_cycles + loads / main_bandwidth(self.machine),
            timed_cycles=taken,
            moved_bytes=first.plan.moved_bytes + loads,
        )
        return {**trial, readers[0]: replace(first, plan=loading)}

    def _in_a_row(
        self, trial: Mapping[str, HeldKernel], inside: Sequence[str]
    ) -> dict[str, HeldKernel]:
        """A trial's kernels with what they take one behind the other.

        Those that read what stays are short, and begin while the one before ends: each has its
        share of what all take together.
        """
        taken = self._cycles(inside, trial)
        alone = sum(kernel.plan.cycles for kernel in trial.values())
        if taken == inf or not alone:
            return dict(trial)
        plans = {
            symbol: replace(
                kernel.plan,
                predicted_cycles=kernel.plan.cycles * taken / alone,
                timed_cycles=kernel.plan.cycles * taken / alone,
            )
            for symbol, kernel in trial.items()
        }
        return {symbol: replace(trial[symbol], plan=own) for symbol, own in plans.items()}

    def _gain(
        self, trial: Mapping[str, HeldKernel], row: Sequence[str], first: int, last: int
    ) -> float:
        """Cycles by which kernels of a row are faster so, with those before and behind, or, where
        these cannot be timed, alone."""
        for around in (row[max(first - 1, 0) : last + 1], row[first:last]):
            before = self._cycles(around, {})
            if before < inf:
                return before - self._cycles(around, trial)
        return 0.0

    def _cycles(self, symbols: Sequence[str], trial: Mapping[str, HeldKernel]) -> float:
        """What kernels in a row take, some of them as a trial has them."""
        try:
            kernels = [self.trials.ready(symbol, trial, self.chosen) for symbol in symbols]
            key = _alike(kernels)
            if key not in self.known.times:
                self.known.times[key] = self.run_timer(kernels)
        except TilewrightError:
            return inf
        return self.known.times[key]


def _alike(kernels: Sequence[CompiledKernel]) -> object:
    """Kernels in a row without names: what they are, their schedules, what they share."""
    values: dict[str, int] = {}
    described: list[object] = []
    for kernel in kernels:
        assert kernel.schedule is not None and kernel.machine is not None
        alike, names = canonical(kernel.kernel)
        shared = tuple(values.setdefault(name, len(values)) for name in names)
        described.append((alike, renamed(kernel.schedule, names), sizes_of(kernel.machine), shared))
    return tuple(described)


def _computes(kernel: Kernel, schedule: Schedule) -> Iterator[tuple[Kernel, Schedule]]:
    """A kernel and its producers, and theirs, each with its schedule."""
    yield kernel, schedule
    for producer, inner in zip(kernel.producers, schedule.producers, strict=True):
        yield from _computes(producer, inner)
