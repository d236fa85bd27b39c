"""The tensors that could stay on the chip, whole, in a memory that is ``resident``.

Three kinds: a result that kernels of a row alone read, an input that several of them load, and
constants, which can be there before the network's first kernel runs. A view of one run of elements,
such as a reshape, is the tensor that it reads, or a part of it, under another name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.graph.dialect import WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.graph.operation import Operation
from tilewright.graph.placement import placement_of
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue
from tilewright.ir.types import element_size, layout_of, shape_of, tensor_type
from tilewright.machine import Machine, Memory, Storage
from tilewright.memory import align_up
from tilewright.network.candidates import Trials
from tilewright.planning.cost.bounds import main_bandwidth
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.footprint import holds_sums

CONSTANTS = ("weight", "bias")
"""The roles of constants."""


@dataclass(frozen=True)
class Candidate:
    """A tensor that kernels hand on or share, or that is there when the network begins."""

    names: Mapping[str, str]
    """Names as an operand of each kernel that has it in a buffer."""
    shifts: Mapping[str, int]
    """Bytes by kernel from the tensor's start to the part that the kernel reads: 0 unless that is a
    slice."""
    writer: str | None
    """The kernel that computes it, which then does not store it; None if it is loaded."""
    memory: Memory
    bytes: int
    """Bytes that it takes of the memory, with the granules of its users."""
    spared: float
    """Cycles of the transfers that it spares."""
    constant: bool = False
    """True if it is loaded before the network's first kernel."""

    @property
    def name(self) -> str:
        """The tensor's name where it is computed, or read first."""
        return self.names[self.writer or next(iter(self.names))]


@dataclass(frozen=True)
class _Storage:
    """A tensor in a buffer of a kernel, whole."""

    memory: Memory
    bytes: int
    """Bytes that it takes of the memory, in its granules."""
    image: object
    """The tensor's layout in the buffer: kernels can hand it on if they have the same."""


@dataclass(frozen=True)
class _Use:
    """An operand of a kernel: a tensor, or the part of it that begins ``shift`` bytes later."""

    operand: Operand
    shift: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the operand's elements."""
        return prod(self.operand.shape) * self.operand.element_bytes


_Uses = dict[str, _Use | None]
"""Kernel -> what it has of a tensor; None where that is several operands."""


@dataclass(frozen=True)
class Candidates:
    """The tensors of a network's kernels on a machine."""

    machine: Machine
    trials: Trials

    def constants(self, row: Sequence[str]) -> Iterator[list[Candidate]]:
        """Constants, those together that are tried together: each that several kernels read, and
        then the biases that one kernel reads, which each spare a latency."""
        readers: dict[int, _Uses] = {}
        for symbol in row:
            for value, operand in self._operands(symbol):
                if isinstance(value.owner, WeightOp):
                    # Equal constants lie in one place.
                    _add(readers.setdefault(placement_of(value).offset, {}), symbol, _Use(operand))
        biases: list[Candidate] = []
        for uses in readers.values():
            candidate = self._shared(uses, least=1, constant=True)
            if candidate is not None and len(uses) > 1:
                yield [candidate]
            elif candidate is not None and all(
                u and u.operand.role == "bias" for u in uses.values()
            ):
                biases.append(candidate)
        if biases:
            yield biases

    def of(self, row: Sequence[str]) -> Iterator[Candidate]:
        """The tensors that several kernels of a row use, each in one memory and whole, those
        touched first at the front."""
        reads: dict[SSAValue, _Uses] = {}
        writes: dict[SSAValue, tuple[str, Operand]] = {}
        order: dict[SSAValue, None] = {}
        for symbol in row:
            kernel = self.trials.kernels[symbol]
            for value, operand in self._operands(symbol):
                if not isinstance(value.owner, WeightOp):
                    root = _root(value)
                    shift = placement_of(value).offset - placement_of(root).offset
                    _add(reads.setdefault(root, {}), symbol, _Use(operand, shift))
                    order.setdefault(root)
            output = self.trials.ops[symbol].result
            writes[output] = symbol, kernel.output
            order.setdefault(output)
        for value in order:
            readers = reads.get(value, {})
            if value in writes and readers:
                inside = {self.trials.ops[symbol] for symbol in readers}
                apart = set(_users(value)) == inside and _is_dense(value)
                if apart and (tensor := self._handed_on(writes[value], readers)):
                    yield tensor
                    continue
            if len(readers) > 1 and (tensor := self._shared(readers)):
                yield tensor

    def _operands(self, symbol: str) -> Iterator[tuple[SSAValue, Operand]]:
        values = operand_values(self.trials.ops[symbol], self.trials.names)
        for operand in self.trials.kernels[symbol].inputs:
            yield values[operand.name], operand

    def _handed_on(self, written: tuple[str, Operand], readers: _Uses) -> Candidate | None:
        """A result that a kernel hands on to readers, all of which find it whole."""
        symbol, output = written
        storage = self._storage(symbol, output.name, "results", written=True)
        storages = [self._storage(at, _name(use), "results") for at, use in readers.items()]
        if storage is None or None in storages:
            return None
        uses = {symbol: _Use(output), **readers}
        return self._candidate(uses, [storage, *storages], symbol, len(readers) + 1)

    def _shared(
        self, readers: _Uses, *, least: int = 2, constant: bool = False
    ) -> Candidate | None:
        """A tensor that the first of several readers loads for the others that can find it."""
        alike: dict[object, dict[str, _Storage]] = {}
        kind = "constants" if constant else "inputs"
        for symbol, use in readers.items():
            storage = self._storage(symbol, _name(use), kind)
            if storage is not None and use is not None:
                key = storage.memory.name, storage.image, use.shift, use.bytes
                alike.setdefault(key, {})[symbol] = storage
        storages = max(alike.values(), key=len, default={})
        if len(storages) < least:
            return None  # Others, if there are any, load it for themselves.
        uses = {symbol: readers[symbol] for symbol in storages}
        return self._candidate(uses, [*storages.values()], None, len(uses) - 1, constant=constant)

    def _candidate(
        self,
        uses: _Uses,
        storages: Sequence[_Storage | None],
        writer: str | None,
        transfers: int,
        *,
        constant: bool = False,
    ) -> Candidate | None:
        known = [storage for storage in storages if storage is not None]
        if len({(storage.memory.name, storage.image) for storage in known}) != 1:
            return None
        memory, size = known[0].memory, max(storage.bytes for storage in known)
        if size >= (memory.room or 0):
            return None
        known_uses = {symbol: use for symbol, use in uses.items() if use is not None}
        moved = max(use.bytes for use in known_uses.values())
        granular = all(use.shift % memory.granule == 0 for use in known_uses.values())
        if not granular:
            return None
        move = self.machine.move(self.machine.main, memory.name)
        spared = moved * transfers / main_bandwidth(self.machine)
        spared += (len(uses) if constant else transfers) * move.latency / move.in_flight
        names = {symbol: use.operand.name for symbol, use in known_uses.items()}
        shifts = {symbol: use.shift for symbol, use in known_uses.items()}
        return Candidate(names, shifts, writer, memory, size, spared, constant)

    def _storage(
        self, symbol: str, name: str | None, kind: str, *, written: bool = False
    ) -> _Storage | None:
        """The memory in which a kernel has a tensor whole, in one buffer, and such tensors may
        stay; None where it is read twice, in parts, in place, or window by window."""
        whole, plan = self.trials.kernels[symbol], self.trials.plans[symbol]
        uses = (
            [(whole, whole.output, plan.schedule)]
            if written
            else [
                (kernel, operand, schedule)
                for kernel, schedule in computes(whole, plan.schedule)
                for stage in kernel.stages
                for operand in stage.inputs
                if operand.name == name
            ]
        )
        if len(uses) != 1:
            return None
        ((kernel, operand, schedule),) = uses
        constant = operand.role in CONSTANTS and not operand.computed
        if operand.image is not None or constant != (kind == "constants"):
            return None
        primitives = [self.machine.primitive(schedule.primitive)]
        if not whole.producers:  # Another one may have it in another memory.
            primitives += self.machine.primitives_for(kernel.anchor.operation)
        for primitive in primitives:
            storage = primitive.operands.get(operand.role)
            if storage is None or kind not in self.machine.memory(storage.memory).resident:
                continue
            wide = written and holds_sums(kernel, primitive)  # Sums are wider than results.
            return None if wide else self._stored(operand, kernel, storage)
        return None

    def _stored(self, operand: Operand, kernel: Kernel, storage: Storage) -> _Storage | None:
        """An operand whole in the memory of its storage."""
        if storage.own.windows_apart():
            return None
        memory, extents = self.machine.memory(storage.memory), kernel.anchor.extents
        size = operand.element_bytes
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            low, span = axis.interval({dim: (0, extents.get(dim, 1)) for dim in axis.dims})
            if low > 0 or low + span < extent:
                return None
            size *= align_up(extent, axis.granule(storage.multiples))
        image = _image(operand, kernel, memory, storage)
        return _Storage(memory, align_up(size, memory.granule), image)


def _add(uses: _Uses, symbol: str, use: _Use) -> None:
    known = uses.setdefault(symbol, use)
    if known is None or known.operand.name != use.operand.name:
        uses[symbol] = None


def _name(use: _Use | None) -> str | None:
    return None if use is None else use.operand.name


def _image(operand: Operand, kernel: Kernel, memory: Memory, storage: Storage) -> object:
    """Return a key of an operand's image in a memory: a whole tensor lies as in main memory,
    whatever shape a kernel gives it, unless it is spread over banks. Rows that windows step over go
    to banks by the step; constants may lie as the loops of their kernels take them."""
    if operand.role in CONSTANTS:
        return operand.shape, operand.layout, operand.element_bytes, operand.access
    if memory.banks == 1 or not storage.multiples:
        return operand.element_bytes
    reduced = kernel.anchor.reduction
    steps = tuple(
        max((abs(step) for dim, step in axis.terms if dim not in reduced), default=1)
        for axis in operand.access
    )
    return operand.shape, operand.layout, operand.element_bytes, steps


def _is_dense(value: SSAValue) -> bool:
    """Return True if a tensor's place in main memory is dense: not a part of another one's."""
    shape = shape_of(value)
    layout = Layout.parse(layout_of(value), len(shape))
    axes = zip(
        layout.physical_shape(shape),
        placement_of(value).strides,
        layout.strides(shape),
        strict=True,
    )
    return all(extent == 1 or here == dense for extent, here, dense in axes)


def _root(value: SSAValue) -> SSAValue:
    """The tensor of which a value is one run of bytes."""
    owner = value.owner
    while isinstance(owner, Operation) and len(owner.inputs) == 1:
        (source,) = owner.inputs
        if not _is_run_of(value, source):
            break
        value, owner = source, source.owner
    return value


def _is_run_of(value: SSAValue, source: SSAValue) -> bool:
    """Return True if a value's bytes lie in main memory as one run of another's."""
    (first, end), (start, last) = (
        (place.offset, place.offset + prod(shape_of(v)) * element_size(tensor_type(v).element_type))
        for v in (value, source)
        for place in (placement_of(v),)
    )
    inside = placement_of(value).arena == placement_of(source).arena
    return inside and start <= first and end <= last and _is_dense(source) and _is_dense(value)


def _users(value: SSAValue) -> Iterator[AnyOperation]:
    """Yield the operations that read a tensor, also through operations that only rename it."""
    for use in value.uses:
        operation = use.operation
        if isinstance(operation, Operation) and _root(operation.result) is _root(value):
            yield from _users(operation.result)
        else:
            yield operation


def computes(kernel: Kernel, schedule: Schedule) -> Iterator[tuple[Kernel, Schedule]]:
    """A kernel and its producers, and theirs, each with its schedule."""
    yield kernel, schedule
    for producer, inner in zip(kernel.producers, schedule.producers, strict=True):
        yield from computes(producer, inner)
