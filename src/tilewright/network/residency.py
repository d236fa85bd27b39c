"""Tensors that stay on the chip from one kernel to others, in a memory that is ``resident``.

A tensor that several kernels read is loaded by the first and found by the others (siblings: DNNVM,
section 4.3). A result that no other kernel needs in main memory is not stored at all: the kernels
that read it find it where the one that computes it has left it. Such a tensor lies whole in the
memory, and every tile of it is a box of what lies there (``Schedule.stays``); the buffers of all
kernels that run at that time keep to the rest of the memory (``Schedule.rooms``).

Before::

    k1: load x, store y      k2: load y, load x, store z      k3: load x, store w

After, with x and y resident::

    k1: load x               k2: store z                      k3: store w

Kernels are groups of the fusion search as well as single ones. Tensors are gone through in the
order of the network; each stays where all kernels of its time, in a row with their neighbours, are
faster so by the target's simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.graph.placement import placement_of
from tilewright.ir import SSAValue
from tilewright.ir.types import layout_of, shape_of
from tilewright.machine import Machine, Memory
from tilewright.machine.capabilities import keeps_tensors
from tilewright.memory import align_up, lowest_gap
from tilewright.network.candidates import Trials
from tilewright.network.fusion.plan import StayingTensor
from tilewright.planning import Plan, Planner, Timer
from tilewright.planning.bounds import main_bandwidth
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.domain import Kernel, Operand, with_operands
from tilewright.planning.footprint import holds_sums
from tilewright.planning.held import holding
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Resident, Schedule

WORTH = 1e-3
"""Part of the cycles of kernels in a row that the transfers that are spared must take for a tensor
to be tried: planning for the memory that is left takes time."""


Rooms = tuple[tuple[str, int], ...]
"""``Schedule.rooms``."""


@dataclass
class Known:
    """Plans and times, for kernels that are alike, of searches for one machine."""

    planners: dict[Rooms, Planner] = field(default_factory=dict["Rooms", Planner])
    """By the memories in which something stays, and their bytes that are left."""
    times: dict[object, float] = field(default_factory=dict[object, float])
    """Cycles of kernels in a row."""


@dataclass(frozen=True)
class Residency:
    """What a search has found."""

    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    """The plans of the kernels that run while a tensor stays, by their symbols."""
    tensors: tuple[StayingTensor, ...] = ()


def keep_tensors(
    network: NetworkOp,
    machine: Machine,
    kernels: Mapping[str, Kernel],
    plans: Mapping[str, Plan],
    run_timer: RunTimer | None,
    timer: Timer | None = None,
    known: Known | None = None,
) -> Residency:
    """The tensors that stay, and the plans of the kernels that run at that time.

    ``kernels`` are those of the accelerator and ``plans`` their plans where nothing stays, chosen
    with ``timer`` if there is one; ``known`` is what another search for the machine has found.
    Nothing stays where ``run_timer`` cannot tell whether that pays.
    """
    if run_timer is None or not keeps_tensors(machine):
        return Residency()
    trials = Trials(network, machine, kernels, plans, {})
    return _Search(machine, trials, run_timer, timer, known or Known()).run()


@dataclass(frozen=True)
class _Storage:
    """A tensor in a buffer of a kernel, whole."""

    memory: Memory
    bytes: int
    """That it takes of the memory, in its granules."""
    image: object
    """How it lies there: kernels can hand it on if they have the same."""


@dataclass(frozen=True)
class _Candidate:
    """A tensor that kernels of a row hand on or share."""

    name: str
    """Its name as an operand."""
    writer: str | None
    """The kernel that computes it, which then does not store it; None if it is loaded."""
    readers: frozenset[str]
    memory: Memory
    bytes: int
    """That it takes of the memory, with the granules of its users."""
    moved: int
    """Its bytes, of one transfer."""

    @property
    def users(self) -> frozenset[str]:
        """The kernels that have it in a buffer."""
        return self.readers | ({self.writer} if self.writer else frozenset[str]())

    @property
    def spared(self) -> int:
        """Bytes that no longer move: of all loads but one, or of all loads and the store."""
        return self.moved * (len(self.readers) + (1 if self.writer else -1))


@dataclass(frozen=True)
class _Place:
    """A tensor that stays: the first and last kernel of its row, and where it lies."""

    tensor: _Candidate
    first: int
    last: int
    start: int
    """Bytes from the memory's end to its end; ``end`` is how many to its first byte."""
    end: int


@dataclass
class _Search:
    machine: Machine
    trials: Trials
    run_timer: RunTimer
    timer: Timer | None
    known: Known
    chosen: dict[str, Plan] = field(default_factory=dict[str, Plan])
    tensors: list[StayingTensor] = field(default_factory=list[StayingTensor])

    def run(self) -> Residency:
        """All rows of kernels, one after the other."""
        for row in self._rows():
            cycles = sum(self.trials.plans[symbol].cycles for symbol in row)
            placed: list[_Place] = []
            for tensor in self._candidates(row):
                if tensor.spared / main_bandwidth(self.machine) < WORTH * cycles:
                    continue
                place = self._place(tensor, row, placed)
                trial = self._trial([*placed, place], place, row)
                if trial is None:
                    continue
                gain = self._gain(trial, row, place)
                if gain > 0:
                    placed.append(place)
                    self.chosen |= self._in_a_row(trial, row[place.first : place.last + 1])
                    self._note(tensor, trial, gain)
        return Residency(self.chosen, tuple(self.tensors))

    def _note(self, tensor: _Candidate, trial: Mapping[str, Plan], gain: float) -> None:
        users = (
            symbol
            for symbol, plan in trial.items()
            if any(resident.operand == tensor.name for resident in plan.schedule.stays)
        )
        memory, size = tensor.memory.name, tensor.bytes
        self.tensors.append(StayingTensor(tensor.name, memory, tuple(users), size, gain))

    def _rows(self) -> list[list[str]]:
        """Kernels that run one after the other, the host none between them."""
        rows: list[list[str]] = [[]]
        for op in self.trials.network.block.ops:
            if isinstance(op, KernelOp) and op.symbol.data in self.trials.plans:
                rows[-1].append(op.symbol.data)
            elif isinstance(op, KernelOp):
                rows.append([])
        return rows

    def _candidates(self, row: Sequence[str]) -> Iterator[_Candidate]:
        """The tensors that several kernels of a row use, each in one memory and whole, those
        touched first in front."""
        reads: dict[SSAValue, dict[str, Operand]] = {}
        writes: dict[SSAValue, tuple[str, Operand]] = {}
        order: dict[SSAValue, None] = {}
        for symbol in row:
            values = operand_values(self.trials.ops[symbol], self.trials.names)
            kernel = self.trials.kernels[symbol]
            for operand in kernel.inputs:
                value = values[operand.name]
                if not isinstance(value.owner, WeightOp):
                    reads.setdefault(value, {})[symbol] = operand
                    order.setdefault(value)
            output = values[kernel.output.name]
            writes[output] = symbol, kernel.output
            order.setdefault(output)
        for value in order:
            readers = reads.get(value, {})
            if value in writes and readers:
                everyone = {use.operation for use in value.uses}
                inside = {self.trials.ops[symbol] for symbol in readers}
                apart = everyone == inside and _is_dense(value)
                if apart and (tensor := self._handed_on(writes[value], readers)):
                    yield tensor
                    continue
            if len(readers) > 1 and (tensor := self._shared(readers)):
                yield tensor

    def _handed_on(
        self, written: tuple[str, Operand], readers: Mapping[str, Operand]
    ) -> _Candidate | None:
        """A result that a kernel hands on to readers, all of which find it whole."""
        symbol, output = written
        storage = self._storage(symbol, output.name, written=True)
        storages = [self._storage(reader, output.name) for reader in readers]
        if storage is None or None in storages or "results" not in storage.memory.resident:
            return None
        return self._candidate(output, symbol, readers, [storage, *storages])

    def _shared(self, readers: Mapping[str, Operand]) -> _Candidate | None:
        """A tensor that the first of several readers loads for the others that can find it."""
        alike: dict[object, dict[str, _Storage]] = {}
        for symbol, operand in readers.items():
            storage = self._storage(symbol, operand.name)
            if storage is not None:
                key = storage.memory.name, storage.image
                alike.setdefault(key, {})[symbol] = storage
        storages = max(alike.values(), key=len, default={})
        if len(storages) < 2:
            return None  # Others, if there are any, load it for themselves.
        finding = {symbol: readers[symbol] for symbol in storages}
        return self._candidate(next(iter(finding.values())), None, finding, [*storages.values()])

    def _candidate(
        self,
        operand: Operand,
        writer: str | None,
        readers: Mapping[str, Operand],
        storages: Sequence[_Storage | None],
    ) -> _Candidate | None:
        known = [storage for storage in storages if storage is not None]
        if len({(storage.memory.name, storage.image) for storage in known}) != 1:
            return None
        memory, size = known[0].memory, max(storage.bytes for storage in known)
        if size >= (memory.room or 0) or (writer is None and "inputs" not in memory.resident):
            return None
        moved = prod(operand.shape) * operand.element_bytes
        return _Candidate(operand.name, writer, frozenset(readers), memory, size, moved)

    def _storage(self, symbol: str, name: str, *, written: bool = False) -> _Storage | None:
        """The resident memory in which a kernel has a tensor whole, in one buffer; None where it is
        read twice, in parts, in place, or window by window."""
        whole, plan = self.trials.kernels[symbol], self.trials.plans[symbol]
        uses = (
            [(whole, whole.output, plan.schedule)]
            if written
            else [
                (kernel, operand, schedule)
                for kernel, schedule in _computes(whole, plan.schedule)
                for stage in kernel.stages
                for operand in stage.inputs
                if operand.name == name
            ]
        )
        if len(uses) != 1 or uses[0][1].role in ("weight", "bias") or whole.behind:
            return None
        ((kernel, operand, schedule),) = uses
        storage = self.machine.primitive(schedule.primitive).operands.get(operand.role)
        if storage is None or operand.image is not None or storage.own.windows_apart():
            return None
        if written and holds_sums(kernel, self.machine.primitive(schedule.primitive)):
            return None  # Sums are wider than what they become.
        memory = self.machine.memory(storage.memory)
        extents = kernel.anchor.extents
        size = operand.element_bytes
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            low, span = axis.interval({dim: (0, extents.get(dim, 1)) for dim in axis.dims})
            if low > 0 or low + span < extent:
                return None
            size *= align_up(extent, axis.granule(storage.multiples))
        if not memory.resident:
            return None
        image = _image(operand, kernel, memory)
        return _Storage(memory, align_up(size, memory.granule), image)

    def _place(self, tensor: _Candidate, row: Sequence[str], placed: Sequence[_Place]) -> _Place:
        """The lowest place, from the memory's end, beside what stays there at the same time."""
        numbers = [number for number, symbol in enumerate(row) if symbol in tensor.users]
        first, last = numbers[0], numbers[-1]
        beside = [
            (other.start, other.end)
            for other in placed
            if other.tensor.memory.name == tensor.memory.name
            and other.first <= last
            and first <= other.last
        ]
        start = lowest_gap(beside, tensor.bytes, 0)
        end = align_up(start + tensor.bytes, tensor.memory.granule)
        return _Place(tensor, first, last, end - tensor.bytes, end)

    def _top(self, memory: Memory) -> int:
        """The end of what may stay in a memory: below what primitives reserve."""
        besides = [
            self.machine.memory_beside(primitive, memory.name)
            for primitive in self.machine.primitives
        ]
        reserved = max((own.reserved for own in besides), default=memory.reserved)
        return ((memory.bytes or 0) - reserved) // memory.granule * memory.granule

    def _trial(
        self, placed: Sequence[_Place], new: _Place, row: Sequence[str]
    ) -> dict[str, Plan] | None:
        """The plans of all kernels of a tensor's time beside all that stays then; None if one has
        no room, or fewer than two can use the tensor where it lies."""
        trial: dict[str, Plan] = {}
        loaded = new.tensor.writer is not None
        users = 0
        for number in range(new.first, new.last + 1):
            symbol = row[number]
            alive = [place for place in placed if place.first <= number <= place.last]
            plan = self._planned(symbol, alive, new if symbol in new.tensor.users else None, loaded)
            if plan is None:
                return None
            trial[symbol] = plan
            if any(resident.operand == new.tensor.name for resident in plan.schedule.stays):
                loaded, users = True, users + 1
            elif new.tensor.writer is not None and symbol in new.tensor.users:
                return None  # It is nowhere else.
        return trial if users > 1 else None

    def _planned(
        self, symbol: str, alive: Sequence[_Place], new: _Place | None, loaded: bool
    ) -> Plan | None:
        """A kernel beside what stays, with what of that it uses where it lies; of the tensor that
        is tried, only if a schedule does so."""
        before = self.chosen.get(symbol)
        stays = () if before is None else before.schedule.stays
        if new is not None:
            address = self._top(new.tensor.memory) - new.end
            live_in = loaded and symbol != new.tensor.writer
            stays = (*stays, Resident(new.tensor.name, address, live_in))
        rooms: dict[str, int] = {}
        for place in alive:
            memory = place.tensor.memory
            left = self._top(memory) - place.end
            rooms[memory.name] = min(rooms.get(memory.name, left), left)
        kernel, machine = self.trials.kernels[symbol], self.machine
        for resident in stays:
            (place,) = (p for p in alive if p.tensor.name == resident.operand)
            kernel = holding(kernel, {resident.operand}, place.tensor.memory.name)
        key = tuple(sorted(rooms.items()))
        if key not in self.known.planners:
            values = {f"memory.{name}.bytes": size for name, size in key}
            beside = machine.with_values(values)
            self.known.planners[key] = Planner(beside, self._timer(key))
        try:
            plan = self.known.planners[key].plan(kernel)
        except TilewrightError:
            if new is None or new.tensor.writer is not None:
                return None
            return self._planned(symbol, alive, None, loaded)
        return replace(plan, schedule=replace(plan.schedule, stays=stays, rooms=key))

    def _timer(self, rooms: Rooms) -> Timer | None:
        """The timer of kernels whose held operands lie behind the rooms of their memories."""
        timer = self.timer
        if timer is None:
            return None

        def cycles(kernel: Kernel, schedule: Schedule) -> float:
            held = {operand.name: operand.held for operand in kernel.operands if operand.held}
            stays = tuple(
                Resident(name, dict(rooms)[memory], name != kernel.output.name)
                for name, memory in held.items()
            )
            plain = with_operands(kernel, lambda operand: replace(operand, held=""))
            return timer(plain, replace(schedule, stays=stays, rooms=rooms))

        return cycles

    def _in_a_row(self, trial: Mapping[str, Plan], inside: Sequence[str]) -> dict[str, Plan]:
        """A trial's plans with what they take one after the other.

        Kernels that find what stays are short, and begin while the one before ends: each has its
        share of what all take together. Planning has no loads of what stays: who loads it moves
        its bytes.
        """
        taken = self._cycles(inside, trial)
        alone = sum(plan.cycles for plan in trial.values())
        factor = taken / alone if taken < inf and alone else 1.0
        plans: dict[str, Plan] = {}
        for symbol, plan in trial.items():
            loaded = {item.operand for item in plan.schedule.stays if not item.live_in}
            loads = sum(
                prod(operand.shape) * operand.element_bytes
                for kernel, _ in _computes(self.trials.kernels[symbol], plan.schedule)
                for operand in kernel.inputs
                if operand.name in loaded
            )
            cycles = plan.cycles * factor
            plans[symbol] = replace(
                plan,
                predicted_cycles=cycles,
                timed_cycles=cycles,
                moved_bytes=plan.moved_bytes + loads,
            )
        return plans

    def _gain(self, trial: Mapping[str, Plan], row: Sequence[str], place: _Place) -> float:
        """Cycles by which kernels of a row are faster so, with those before and after, or, where
        these cannot be timed, alone."""
        first, last = place.first, place.last + 1
        for around in (row[max(first - 1, 0) : last + 1], row[first:last]):
            before = self._cycles(around, {})
            if before < inf:
                return before - self._cycles(around, trial)
        return 0.0

    def _cycles(self, symbols: Sequence[str], trial: Mapping[str, Plan]) -> float:
        """What kernels in a row take, some of them as a trial has them."""
        try:
            kernels = [self._ready(symbol, trial) for symbol in symbols]
            key = _alike(kernels)
            if key not in self.known.times:
                self.known.times[key] = self.run_timer(kernels)
        except TilewrightError:
            return inf
        return self.known.times[key]

    def _ready(self, symbol: str, trial: Mapping[str, Plan]) -> CompiledKernel:
        plan = trial.get(symbol) or self.chosen.get(symbol) or self.trials.plans[symbol]
        return self.trials.compiled(symbol, plan.schedule, self.machine, cycles=plan.cycles)


def _image(operand: Operand, kernel: Kernel, memory: Memory) -> object:
    """What an operand's bytes look like in a memory: where it is one bank, a whole tensor lies as
    it does in main memory, whatever shape a kernel gives it. Rows that windows step over go to
    banks by the step."""
    if memory.banks == 1:
        return prod(operand.shape), operand.element_bytes
    reduced = kernel.anchor.reduction
    steps = tuple(
        max((abs(step) for dim, step in axis.terms if dim not in reduced), default=1)
        for axis in operand.access
    )
    return operand.shape, operand.layout, operand.element_bytes, steps


def _is_dense(value: SSAValue) -> bool:
    """Return True if a tensor's place in main memory has no gaps: not a part of another one's."""
    shape = shape_of(value)
    layout = Layout.parse(layout_of(value), len(shape))
    return placement_of(value).strides == layout.strides(shape)


def _alike(kernels: Sequence[CompiledKernel]) -> object:
    """Kernels in a row without names: what they are, their schedules, what they share."""
    values: dict[str, int] = {}
    described: list[object] = []
    for kernel in kernels:
        assert kernel.schedule is not None
        alike, names = canonical(kernel.kernel)
        shared = tuple(values.setdefault(name, len(values)) for name in names)
        described.append((alike, renamed(kernel.schedule, names), shared))
    return tuple(described)


def _computes(kernel: Kernel, schedule: Schedule) -> Iterator[tuple[Kernel, Schedule]]:
    """A kernel and its producers, and theirs, each with its schedule."""
    yield kernel, schedule
    for producer, inner in zip(kernel.producers, schedule.producers, strict=True):
        yield from _computes(producer, inner)
