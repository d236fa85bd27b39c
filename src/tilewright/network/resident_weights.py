"""Weights that stay on the chip from the first kernel that reads them to the last.

The steps of a recurrent layer are kernels of their own that read the same weights. Where the memory
that weights are loaded to ``holds`` values, a part of it is given to such weights for the time of
their life: the first kernel loads as many of their tiles there as fit, and the others find them.
What does not fit comes tile by tile in each kernel, as ever. All kernels of that time are planned
for the memory that is left.

Before::

    k1: load u (1280 KB, tile by tile), compute     k2: load u, compute     k3: load u, compute

After, with 576 KB of u held::

    k1: load u, compute     k2: load 704 KB of u, compute     k3: load 704 KB of u, compute

Small tiles leave room for more held ones but pay a latency each, and less of them loads ahead of
the kernel: several parts of the memory are tried. For each, schedules are chosen by an estimate of
what a kernel takes that finds its weights; then all kernels of the network are run, one after the
other, and the fastest way is taken if it beats holding nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import NetworkOp, WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.graph.placement import placement_of
from tilewright.ir import StringAttr
from tilewright.machine import Machine, Memory
from tilewright.memory import ALIGNMENT, align_up
from tilewright.network.candidates import Trials, sizes_of
from tilewright.network.resident_values import HeldKernel, TimerOf
from tilewright.planning import Plan, PlanCache, Planner, Timer
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.plan import Budget
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.held import last_fitting, tile_bytes
from tilewright.tile.dialect import programs_of

SEGMENTS = ("g", "co", "c", "ci", "kh", "kw")
"""Dims of weights in the order in which tiles lie in memory: the last ones are held."""

PARTS = (2, 3, 4, 6)
"""Kernels are tried with one part in so many of the memory; the rest is for held tiles."""


@dataclass(frozen=True)
class _Shared:
    """Weights that several kernels read."""

    readers: Mapping[str, str]
    """Kernel -> the operand, in the order of the network."""
    first: int
    last: int
    """Steps of the first and the last of them."""


@dataclass
class _Search:
    network: NetworkOp
    machine: Machine
    kernels: Mapping[str, Kernel]
    plans: Mapping[str, Plan]
    held: Mapping[str, HeldKernel]
    timer: TimerOf | None
    run_timer: RunTimer
    kept: dict[str, HeldKernel] = field(default_factory=dict[str, HeldKernel])
    caches: dict[tuple[bool, tuple[int | None, ...]], PlanCache] = field(
        default_factory=dict[tuple[bool, tuple[int | None, ...]], PlanCache]
    )
    """For readers of the weights, and for others, by the bytes of all memories."""

    def __post_init__(self) -> None:
        self.trials = Trials(self.network, self.machine, self.kernels, self.plans, self.held)

    def run(self) -> dict[str, HeldKernel]:
        ops, names = self.trials.ops, self.trials.names
        self.steps = {symbol: number for number, symbol in enumerate(ops)}
        # Equal weights lie in one place.
        readers: dict[int, dict[str, str]] = {}
        for symbol, op in ops.items():
            values = operand_values(op, names)
            for operand in self.kernels[symbol].inputs:
                value = values[operand.name]
                if operand.role == "weight" and isinstance(value.owner, WeightOp):
                    place = placement_of(value).offset
                    readers.setdefault(place, {})[symbol] = operand.name
        taken: list[tuple[str, int, int]] = []
        for users in readers.values():
            memory = self._memory(users)
            if len(users) < 2 or memory is None:
                continue
            numbers = [self.steps[symbol] for symbol in users]
            shared = _Shared(users, min(numbers), max(numbers))
            if any(
                name == memory.name and first <= shared.last and shared.first <= last
                for name, first, last in taken
            ):
                continue
            best = self._best(shared, memory)
            if best:
                self.kept |= best
                taken.append((memory.name, shared.first, shared.last))
        return self.kept

    def _memory(self, users: Mapping[str, str]) -> Memory | None:
        """The memory that all users load the weights to, if it holds values."""
        names = {self._place_of(symbol, "weight") for symbol in users}
        memory = self.machine.memory(names.pop() or self.machine.main)
        return memory if not names and memory.own.keeps_values() and memory.bytes else None

    def _place_of(self, symbol: str, role: str) -> str | None:
        primitive = self.machine.primitive(self.trials.now(symbol).schedule.primitive)
        storage = primitive.operands.get(role)
        return None if storage is None else storage.memory

    def _uses(self, symbol: str, memory: str) -> bool:
        """Whether a kernel has something in a memory."""
        primitive = self.machine.primitive(self.trials.now(symbol).schedule.primitive)
        roles = {operand.role for operand in self.trials.kernel(symbol).operands}
        return memory in primitive.reserved or any(
            self._place_of(symbol, role) == memory for role in roles
        )

    def _best(self, shared: _Shared, memory: Memory) -> dict[str, HeldKernel]:
        """The fastest way to hold weights; empty where none is worth it."""
        inside = [
            kernel for kernel, step in self.steps.items() if shared.first <= step <= shared.last
        ]
        lives = [
            kernel
            for kernel in inside
            if kernel in shared.readers or self._uses(kernel, memory.name)
        ]
        least = self._run(self.kept)
        best: dict[str, HeldKernel] = {}
        for left in sorted(set(self._lefts(shared, memory)), reverse=True):
            try:
                trial = self._trial(shared, memory, lives, left)
                cycles = self._run({**self.kept, **trial}) if trial else inf
            except TilewrightError:
                continue
            if cycles < least:
                least, best = cycles, trial
        return best

    def _run(self, trial: Mapping[str, HeldKernel]) -> float:
        """Cycles of all kernels one after the other, some of them as a trial has them.

        All, as weights may load many kernels ahead of those that read them.
        """
        kernels: list[CompiledKernel] = []
        for symbol in self.steps:
            held = trial.get(symbol) or self.held.get(symbol)
            machine, keeps = (self.machine, "") if held is None else (held.machine, held.keeps)
            chosen = self.trials.now(symbol) if held is None else held.plan
            kernels.append(
                self.trials.compiled(symbol, chosen.schedule, machine, keeps, cycles=chosen.cycles)
            )
        return self.run_timer(kernels)

    def _lefts(self, shared: _Shared, memory: Memory) -> Iterator[int]:
        """The bytes of the memory that kernels may have."""
        total = memory.bytes or 0
        symbol, name = next(iter(shared.readers.items()))
        size = align_up(_bytes(_operand(self.trials.kernel(symbol), name)))
        for part in PARTS:
            yield total // part // ALIGNMENT * ALIGNMENT
        if size <= total // 2:
            yield (total - size) // ALIGNMENT * ALIGNMENT

    def _trial(
        self, shared: _Shared, memory: Memory, lives: Sequence[str], left: int
    ) -> dict[str, HeldKernel]:
        """All kernels of the weights' life with so much of the memory; empty if nothing is held."""
        alike = self._machine(list(shared.readers), memory.name, left)
        trial: dict[str, HeldKernel] = {}
        cuts: set[tuple[int, ...]] = set()
        for symbol in lives:
            reads = shared.readers.get(symbol)
            if reads is None:
                machine = self._machine([symbol], memory.name, left)
                trial[symbol] = self._planned(symbol, machine, memory.name)
                continue
            planned = self._planned(symbol, alike, memory.name, reads)
            tiles = _Tiles.of(planned.kernel, planned.plan.schedule)
            cuts.add(tiles.cut)
            kept = last_fitting(tiles.sizes, (memory.bytes or 0) - left)
            if len(cuts) > 1 or planned.plan.cycles == inf or not kept:
                return {}
            timer = None if self.timer is None else self.timer(alike)
            if self.steps[symbol] == shared.first and timer is not None:
                # It loads them all.
                cycles = timer(planned.kernel, planned.plan.schedule)
                planned = replace(planned, plan=replace(planned.plan, timed_cycles=cycles))
            trial[symbol] = replace(planned, keeps=reads)
        return trial

    def _machine(self, symbols: Sequence[str], memory: str, left: int) -> Machine:
        """The machine with what is left to each of some kernels: all of them then have one plan."""
        machines = [self.held[item].machine for item in symbols if item in self.held]
        values = {
            f"memory.{item.name}.bytes": min(
                other.memory(item.name).bytes or 0 for other in machines
            )
            for item in self.machine.memories
            if item.bytes and machines
        }
        return self.machine.with_values({**values, f"memory.{memory}.bytes": left})

    def _planned(self, symbol: str, machine: Machine, memory: str, keeps: str = "") -> HeldKernel:
        """A kernel on a machine; the weights that it ``keeps`` are there already."""
        before = self.held.get(symbol)
        kernel = self.trials.kernel(symbol)
        timer = None if self.timer is None else self.timer(machine)
        cache = self.caches.setdefault((bool(keeps), sizes_of(machine)), {})
        if keeps:
            timer = self._finding(symbol, machine, keeps)
        plan_of_kernel = Planner(
            machine, timer=timer, budget=ALL if keeps else None, cache=cache
        ).plan(kernel)
        if before is None:
            return HeldKernel(kernel, machine, plan_of_kernel, memory, {})
        return replace(before, machine=machine, plan=plan_of_kernel)

    def _finding(self, symbol: str, machine: Machine, keeps: str) -> Timer:
        """A timer of a kernel that finds as many tiles of its weights as fit: behind itself.

        It takes only schedules whose weights, if they have tiles, have two slots for them.
        """

        def cycles(kernel: Kernel, schedule: Schedule) -> float:
            tiles = _Tiles.of(kernel, schedule)
            if len(tiles.sizes) > 1 and not tiles.double:
                return inf
            try:
                compiled = self.trials.compiled(symbol, schedule, machine, keeps)
                alone = self.run_timer([compiled])
                both = (
                    replace(compiled, predicted_cycles=alone),
                    _renamed(compiled, f"{symbol}_again"),
                )
                return self.run_timer(both) - alone
            except TilewrightError:
                return inf

        return cycles


ALL = Budget(settled=-1.0, margin=inf)
"""Times all candidates: what a kernel takes that finds its weights may be below its bounds."""


def hold_weights(
    network: NetworkOp,
    machine: Machine,
    kernels: Mapping[str, Kernel],
    plans: Mapping[str, Plan],
    held: Mapping[str, HeldKernel],
    timer: TimerOf | None = None,
    run_timer: RunTimer | None = None,
) -> dict[str, HeldKernel]:
    """The kernels that run while weights are held, by their symbols.

    ``kernels`` are those of the accelerator, ``plans`` their plans where nothing is held, ``held``
    those that run while values are: they replace them. Nothing is held where
    ``run_timer`` cannot tell whether that pays.
    """
    if run_timer is None:
        return {}
    return _Search(network, machine, kernels, plans, held, timer, run_timer).run()


def _renamed(compiled: CompiledKernel, symbol: str) -> CompiledKernel:
    """The same kernel and program under another symbol."""
    assert compiled.program is not None
    program = compiled.program.clone()
    for op in programs_of(program):
        op.symbol = StringAttr(symbol)
    return replace(compiled, kernel=replace(compiled.kernel, symbol=symbol), program=program)


def _operand(kernel: Kernel, name: str) -> Operand:
    return next(operand for operand in kernel.operands if operand.name == name)


def _bytes(operand: Operand) -> int:
    return operand.bytes


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a kernel's weights under a schedule."""

    cut: tuple[int, ...]
    """Extents of the largest tile along their dims."""
    sizes: tuple[int, ...]
    """Bytes of each, in the order of the network's outputs, then inputs, then rows."""
    double: bool

    @staticmethod
    def of(kernel: Kernel, schedule: Schedule) -> _Tiles:
        (operand,) = (item for item in kernel.inputs if item.role == "weight")
        read = {dim for axis in operand.access for dim in axis.dims}
        dims = [item for item in SEGMENTS if item in read] + sorted(read - set(SEGMENTS))
        extents = [kernel.anchor.extents.get(dim, 1) for dim in dims]
        cut = tuple(
            min(level.size(dim, extent) for level in schedule.levels)
            for dim, extent in zip(dims, extents, strict=True)
        )
        sizes = tile_bytes(zip(extents, cut, strict=True), operand.element_bytes)
        return _Tiles(cut, sizes, schedule.slots(operand.name) > 1)
