"""Tensors that stay on the chip from one kernel to others, in a memory that is ``resident``.

A tensor that several kernels read is loaded by the first and found by the others (siblings: DNNVM,
section 4.3). A result that no other kernel needs in main memory is not stored at all: the kernels
that read it find it where the one that computes it has left it. Constants are there from the start
of the network on: each that several kernels read, and all biases where their latencies matter. Such
a tensor lies whole at the memory's end, and every tile of it is a box of what lies there
(``Schedule.stays``); kernels that run at that time have the rest of the memory
(``Schedule.rooms``).

Before::

    k1: load x, store y      k2: load y, load x, store z      k3: load x, store w

After, with x and y resident::

    k1: load x               k2: store z                      k3: store w

Kernels are groups of the fusion search as well as single ones. Tensors are gone through in the
order of the network; each stays where all kernels of its time, in a row with their neighbours, are
faster so by the target's simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import NetworkOp
from tilewright.machine import Machine, Memory
from tilewright.machine.capabilities import keeps_tensors
from tilewright.memory import align_up, lowest_gap
from tilewright.network.candidates import Trials
from tilewright.network.fusion.plan import StayingTensor
from tilewright.network.resident_candidates import Candidate, Candidates, computes
from tilewright.network.rows import alike, kernel_rows
from tilewright.planning import Plan, Planner, Timer
from tilewright.planning.domain import Kernel, with_operands
from tilewright.planning.own import lies_by_tile
from tilewright.planning.schedule import Resident, Schedule
from tilewright.planning.space.residents import holding

WORTH = 1e-3
"""Part of the cycles of kernels in a row that the transfers that are spared must take for a tensor
to be tried: planning for the memory that is left takes time."""

CONSTANTS_WORTH = 1e-2
"""The part for constants, which take room from all kernels before their last reader."""

NEIGHBOURS = 8
"""Kernels in a row that are timed together at least, where a network has that many: a kernel may
load what it needs several kernels ahead."""

Rooms = tuple[tuple[str, int], ...]
"""The type of ``Schedule.rooms``: memories and bytes."""


@dataclass(frozen=True)
class Residency:
    """The tensors that a search chose to keep on chip, with their kernels' plans."""

    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    """The plans of the kernels that run while a tensor stays, by their symbols."""
    tensors: tuple[StayingTensor, ...] = ()


def keep_tensors(
    network: NetworkOp,
    machine: Machine,
    kernels: Mapping[str, Kernel],
    plans: Mapping[str, Plan],
    run_timer: RunTimer | None,
    planner: Planner,
) -> Residency:
    """The tensors that stay, and the plans of the kernels that run at that time.

    ``kernels`` are those of the accelerator and ``plans`` their plans where nothing stays, by
    ``planner``, whose budget the search has, too. Nothing stays where ``run_timer`` cannot tell
    whether that pays.
    """
    if run_timer is None or not keeps_tensors(machine):
        return Residency()
    trials = Trials(network, machine, kernels, plans)
    return _Search(machine, trials, run_timer, planner).run()


@dataclass(frozen=True)
class _Place:
    """A tensor that stays, the kernels that run meanwhile, and where it lies."""

    tensor: Candidate
    time: tuple[str, ...]
    start: int
    """Bytes from the memory's end to its end; ``end`` is how many to its first byte."""
    end: int


@dataclass
class _Search:
    machine: Machine
    trials: Trials
    run_timer: RunTimer
    planner: Planner
    planners: dict[Rooms, Planner] = field(default_factory=dict["Rooms", Planner])
    """By the memories in which something stays, and their bytes that are left."""
    times: dict[object, float] = field(default_factory=dict[object, float])
    """Cycles of kernels in a row, of which those that are alike are timed once."""
    chosen: dict[str, Plan] = field(default_factory=dict[str, Plan])
    placed: list[_Place] = field(default_factory=list["_Place"])
    tensors: list[StayingTensor] = field(default_factory=list[StayingTensor])

    def run(self) -> Residency:
        """All rows of kernels, one after the other; then constants, whose latencies count most
        where little else is loaded."""
        rows = kernel_rows(self.trials.network, self.trials.plans)
        every = [symbol for row in rows for symbol in row]
        candidates = Candidates(self.machine, self.trials)
        for row in rows:
            for tensor in candidates.of(row):
                self._try([tensor], row, WORTH)
        for together in candidates.constants(every):
            self._try(together, every, CONSTANTS_WORTH)
        return Residency(self.chosen, tuple(self.tensors))

    def _try(self, tensors: Sequence[Candidate], row: Sequence[str], worth: float) -> None:
        """Let tensors stay where the kernels of their time are faster so."""
        cycles = sum(self.trials.plans[symbol].cycles for symbol in row)
        if sum(tensor.spared for tensor in tensors) < worth * cycles:
            return
        users = [n for n, symbol in enumerate(row) if any(symbol in t.names for t in tensors)]
        # Constants come with one load before the first kernel, and lie side by side.
        first = 0 if tensors[0].constant else users[0]
        time = tuple(row[first : users[-1] + 1])
        places: list[_Place] = []
        for tensor in tensors:
            places.append(self._place(tensor, time, [*self.placed, *places]))
        if not all(self._leaves_room(place) for place in places):
            return
        trial = self._trial(places, time)
        if trial is None:
            return
        gain = self._gain(trial, row, time)
        if gain > 0:
            self.placed += places
            self.chosen |= self._in_a_row(trial, time)
            for tensor in tensors:
                self._note(tensor, trial, gain / len(tensors))

    def _note(self, tensor: Candidate, trial: Mapping[str, Plan], gain: float) -> None:
        users = tuple(
            symbol for symbol, name in tensor.names.items() if stays(trial[symbol].schedule, name)
        )
        self.tensors.append(
            StayingTensor(tensor.name, tensor.memory.name, users, tensor.bytes, gain)
        )

    def _place(self, tensor: Candidate, time: tuple[str, ...], placed: Sequence[_Place]) -> _Place:
        """The lowest place, from the memory's end, beside what stays there at the same time."""
        beside = [
            (other.start, other.end)
            for other in placed
            if other.tensor.memory.name == tensor.memory.name and {*other.time} & {*time}
        ]
        start = lowest_gap(beside, tensor.bytes, 0)
        end = align_up(start + tensor.bytes, tensor.memory.granule)
        return _Place(tensor, time, end - tensor.bytes, end)

    def _leaves_room(self, place: _Place) -> bool:
        """Return True if buffers still have bytes of the memory before a place."""
        memory = place.tensor.memory
        return place.end + memory.reserved < self._top(memory)

    def _trial(self, new: Sequence[_Place], time: Sequence[str]) -> dict[str, Plan] | None:
        """The plans of all kernels of some tensors' time beside all that stays then; None if one
        has no room, or too few can use a tensor where it lies."""
        trial: dict[str, Plan] = {}
        users = dict.fromkeys((place.tensor.name for place in new), 0)
        cuts: dict[str, set[object]] = {}
        for symbol in time:
            alive = [place for place in (*self.placed, *new) if symbol in place.time]
            using = [place for place in new if symbol in place.tensor.names]
            left = [
                place.tensor.writer is not None
                or place.tensor.constant
                or users[place.tensor.name] > 0
                for place in using
            ]
            residents = [
                Resident(
                    place.tensor.names[symbol],
                    self._top(place.tensor.memory) - place.end + place.tensor.shifts[symbol],
                    stored and symbol != place.tensor.writer,
                )
                for place, stored in zip(using, left, strict=True)
            ]
            plan = self._planned(symbol, alive, residents)
            if plan is None and all(place.tensor.writer is None for place in using):
                plan = self._planned(symbol, alive, ())
            if plan is None:
                return None
            trial[symbol] = plan
            for place in using:
                name = place.tensor.names[symbol]
                if stays(plan.schedule, name):
                    users[place.tensor.name] += 1
                    cuts.setdefault(place.tensor.name, set()).add(self._cut(symbol, name, plan))
        least = [1 if place.tensor.constant else 2 for place in new]
        enough = all(n >= wanted for n, wanted in zip(users.values(), least, strict=True))
        return trial if enough and all(len(cut) == 1 for cut in cuts.values()) else None

    def _cut(self, symbol: str, name: str, plan: Plan) -> object:
        """The tiles of a constant that lies in memory tile by tile: all readers have the same."""
        kernel, schedule = self.trials.kernels[symbol], plan.schedule
        operand = next(operand for operand in kernel.operands if operand.name == name)
        storage = self.machine.primitive(schedule.primitive).operands.get(operand.role)
        if storage is None or not lies_by_tile(storage):
            return None
        extents = kernel.anchor.extents
        return tuple(
            min(level.size(dim, extents[dim]) for level in schedule.levels)
            for dim in extents
            if dim in operand.dims
        )

    def _top(self, memory: Memory) -> int:
        """The end of what may stay in a memory."""
        return (memory.bytes or 0) // memory.granule * memory.granule

    def _planned(
        self, symbol: str, alive: Sequence[_Place], new: Sequence[Resident]
    ) -> Plan | None:
        """A kernel beside what stays, with what of that it uses where it lies; None where no
        schedule does so."""
        before = self.chosen.get(symbol)
        residents = (*(() if before is None else before.schedule.stays), *new)
        rooms: dict[str, int] = {}
        memories: dict[str, str] = {}
        for place in alive:
            memory = place.tensor.memory
            left = self._top(memory) - place.end
            rooms[memory.name] = min(rooms.get(memory.name, left), left)
            memories[place.tensor.names.get(symbol, "")] = memory.name
        kernel, machine = self.trials.kernels[symbol], self.machine
        for resident in residents:
            kernel = holding(kernel, {resident.operand}, memories[resident.operand])
        key = tuple(sorted(rooms.items()))
        if key not in self.planners:
            values = {f"memory.{name}.bytes": size for name, size in key}
            beside = machine.with_values(values)
            self.planners[key] = self.planner.on(beside, self._timer(key))
        try:
            plan = self.planners[key].plan(kernel)
        except TilewrightError:
            return None
        return replace(plan, schedule=replace(plan.schedule, stays=residents, rooms=key))

    def _timer(self, rooms: Rooms) -> Timer | None:
        """The timer of kernels whose resident operands lie after the rooms of their memories."""
        timer = self.planner.timer
        if timer is None:
            return None

        def cycles(kernel: Kernel, schedule: Schedule) -> float:
            ends, residents = dict(rooms), list[Resident]()
            for operand in {o.name: o for o in kernel.operands if o.resident_in}.values():
                loaded = operand.name != kernel.output.name
                residents.append(Resident(operand.name, ends[operand.resident_in], loaded))
                granule = self.machine.memory(operand.resident_in).granule
                ends[operand.resident_in] += align_up(operand.bytes, granule)
            plain = with_operands(kernel, lambda operand: replace(operand, resident_in=""))
            return timer(plain, replace(schedule, stays=tuple(residents), rooms=rooms))

        return cycles

    def _in_a_row(self, trial: Mapping[str, Plan], inside: Sequence[str]) -> dict[str, Plan]:
        """A trial's plans with what they take one after the other.

        Kernels that find what stays are short, and begin while the one before ends: each has its
        share of what all take together. Planning has no loads of what stays: who loads it moves
        its bytes.
        """
        taken = self._cycles(inside, trial)
        alone = sum(plan.cycles for plan in trial.values())
        factor = min(taken / alone, 1.0) if taken < inf and alone else 1.0
        plans: dict[str, Plan] = {}
        for symbol, plan in trial.items():
            loaded = {item.operand for item in plan.schedule.stays if not item.live_in}
            loads = sum(
                prod(operand.shape) * operand.element_bytes
                for kernel, _ in computes(self.trials.kernels[symbol], plan.schedule)
                for operand in kernel.inputs
                if operand.name in loaded
            )
            plan = replace(plan, moved_bytes=plan.moved_bytes + loads)
            plans[symbol] = plan.in_a_row(plan.cycles * factor)
        return plans

    def _gain(self, trial: Mapping[str, Plan], row: Sequence[str], time: Sequence[str]) -> float:
        """Cycles by which kernels of a row are faster so, with those before and after, or, where
        these cannot be timed, alone."""
        first, last = row.index(time[0]), row.index(time[-1]) + 1
        beside = max((NEIGHBOURS - len(time)) // 2, 1)
        for around in (row[max(first - beside, 0) : last + beside], row[first:last]):
            before = self._cycles(around, {})
            if before < inf:
                return before - self._cycles(around, trial)
        return 0.0

    def _cycles(self, symbols: Sequence[str], trial: Mapping[str, Plan]) -> float:
        """Return the cycles of kernels in a row under a trial's plans; infinity if it fails."""
        try:
            kernels = [self._ready(symbol, trial) for symbol in symbols]
            key = alike([(self.trials.kernels[s], self._plan(s, trial).schedule) for s in symbols])
            if key not in self.times:
                self.times[key] = self.run_timer(kernels)
        except TilewrightError:
            return inf
        return self.times[key]

    def _ready(self, symbol: str, trial: Mapping[str, Plan]) -> CompiledKernel:
        plan = self._plan(symbol, trial)
        return self.trials.compiled(symbol, plan.schedule, plan.cycles)

    def _plan(self, symbol: str, trial: Mapping[str, Plan]) -> Plan:
        return trial.get(symbol) or self.chosen.get(symbol) or self.trials.plans[symbol]


def stays(schedule: Schedule, operand: str) -> bool:
    """Return True if an operand stays on the chip under a schedule."""
    return any(resident.operand == operand for resident in schedule.stays)
