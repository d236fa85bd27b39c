"""The kernels of a chain, what computes each, and the buffers that lie between them.

What a kernel of a chain hands on waits to be read at *home*: in a memory that both primitives
use, or in one on the way between theirs (``waiting_memory``). Where operands pass a memory on
their way (``Machine.path``), there is a buffer in each of them. Buffers next to a primitive may lie
in any of the memories that it names as alternatives; which, is a matter of their sizes
(``Tiling.fits``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.machine import Machine, Memory, Move, Primitive, Storage
from tilewright.planning.chains.links import links_of, renamed_axes, waiting_memory
from tilewright.planning.chains.rooms import Rooms
from tilewright.planning.domain import Affine, Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import hosts_of, path_of, run_elements
from tilewright.planning.space.levels import input_levels, on_the_way, result_levels
from tilewright.planning.space.windows import beside
from tilewright.simulate.commands import transfer_bytes


@dataclass(frozen=True)
class Unit:
    """One kernel of a chain, and what computes it."""

    kernel: Kernel
    """The kernel itself, without its producers."""
    primitive: Primitive
    names: Mapping[str, str]
    """The chain's names of the kernel's dims."""
    bound: Mapping[str, Affine]
    """By these, the expressions to which a domain binds dims, over the consumer's."""

    def granule(self, name: str) -> int:
        """Granule of the kernel's dim that the chain calls ``name``; 1 if there is none."""
        dims = [dim for dim in self.kernel.anchor.extents if self.names.get(dim, dim) == name]
        return max((self.primitive.multiples.get(dim, 1) for dim in dims), default=1)

    @cached_property
    def axes(self) -> dict[str, tuple[Affine, ...]]:
        """The operands' access maps, by the chain's names."""
        return {o.name: renamed_axes(o.access, self.names) for o in self.kernel.operands}


def units_of(kernel: Kernel, machine: Machine, primitives: Sequence[Primitive]) -> tuple[Unit, ...]:
    """The kernels of a chain, producers first, the last one last; refuses chains that a machine has
    no place for."""
    units = tuple(_units(kernel, iter(primitives), {}, {}, 0))
    for unit in units:
        for operand in unit.kernel.operands:
            if operand.role not in unit.primitive.operands:
                reason = f"{unit.primitive.name} of {machine.name} takes no {operand.role}"
                raise refuse("plan-operand", f"{reason} ({operand.name})", kernel.symbol)
        if len(units) > 1 and unit.primitive.sizes == "fixed":
            raise refuse(
                "kernel-chain",
                f"instances of {unit.primitive.name} have fixed sizes, and tiles of a chain differ "
                "at the edges",
                kernel.symbol,
            )
    return units


def _units(
    kernel: Kernel,
    primitives: Iterator[Primitive],
    names: Mapping[str, str],
    bound: Mapping[str, Affine],
    count: int,
) -> Iterable[Unit]:
    for link in links_of(kernel, count):
        inner = {dim: names.get(name, name) for dim, name in link.names.items()}
        axes = dict(zip(link.bound, renamed_axes(tuple(link.bound.values()), names), strict=True))
        yield from _units(link.producer, primitives, inner, axes, link.number)
    yield Unit(kernel.alone, next(primitives), names, bound)


@dataclass(frozen=True)
class Place:
    """A buffer of a chain, whatever its tile."""

    operand: Operand
    """The operand as the kernel in whose loops the buffer stands accesses it."""
    unit: int
    """The number of the kernel to which the operand belongs."""
    memory: Memory
    """The usual one; moves to and from alternatives are taken to be like its own."""
    fill: Move | None = None
    """The move that fills it; None where a primitive does, or moves from another buffer do."""
    flush: Move | None = None
    """The move that empties it, for results."""
    source: int | None = None
    """The buffer from which it is filled; None for main memory."""
    target: int | None = None
    """The buffer to which it is emptied; None for main memory."""
    staged: bool = False
    """True if parts of it are moved on to the primitive's memory."""
    level: int | None = None
    """The level of whose tiles it holds parts, 0 for the outermost one; None for the innermost."""
    host: str = ""
    """The operand in whose move this one travels."""
    granules: tuple[int, ...] = ()
    """Multiples to which its box is rounded along each axis."""
    made_by: int | None = None
    """The kernel whose primitive writes it."""
    alternatives: tuple[Memory, ...] = ()
    """The memories in which it may lie instead."""
    apart: tuple[str, ...] = ()
    """Dims of a window along which each window is moved by itself."""
    stated_bytes: int = 0
    """Bytes of an element as the primitive takes it; 0 for those of the operand."""

    @property
    def element_bytes(self) -> int:
        """Bytes of an element on the chip, and on its way there."""
        return self.stated_bytes or self.operand.element_bytes

    @property
    def name(self) -> str:
        """The name of the operand in the buffer."""
        return self.operand.name

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memories that may hold the buffer, the usual one first."""
        return (self.memory, *self.alternatives)

    @property
    def move(self) -> Move | None:
        """The move that fills or empties it; None where primitives, or other buffers' moves, do."""
        return self.fill or self.flush

    def moved_bytes(self, lengths: Sequence[Any]) -> Any:
        """Bytes of a transfer of a box of these lengths (numbers or columns), as the bandwidth of
        the buffer's move counts them."""
        move, size = self.move, prod(lengths, start=self.element_bytes)
        assert move is not None
        if move.transaction == 1 and not move.efficiency:
            return size
        run = run_elements(self.operand, lengths) * self.element_bytes
        return transfer_bytes(move, run, -(-size // np.maximum(run, 1)))

    def slot_bytes(self, lengths: Sequence[Any], element: Any) -> Any:
        """Bytes of a slot for a box of these lengths, of elements of ``element`` bytes, in whole
        granules of whichever memory may hold it."""
        size = element
        for granule, length in zip(self.granules, lengths, strict=True):
            size = size * (-(-length // granule) * granule)
        step = max(memory.granule for memory in self.memories)
        return -(-size // step) * step

    @property
    def has_rows(self) -> bool:
        """True if a part of a tile's results needs a part of it."""
        return self.flush is not None or self.operand.role in ("input", "residual")


@dataclass(frozen=True)
class CommandKind:
    """A command of a chain, whatever its tiling."""

    engine: str
    move: Move | None
    unit: int
    reads: tuple[int, ...]
    """The indices of the buffers that the command reads."""
    fills: tuple[int, ...]
    buffer: int | None = None
    """The index of a transfer's buffer; None for a compute."""


Meeting = tuple[int, int, tuple[tuple[int, bool], ...]]
"""Two of a chain's commands, and the buffers of which the first fills (True) or reads what the
second reads or fills."""


@dataclass
class Places:
    """The buffers of a chain, and which of them its kernels read and write."""

    units: tuple[Unit, ...]
    machine: Machine

    def __post_init__(self) -> None:
        self.all: list[Place] = []
        self.rooms = Rooms()
        """The sizes of memories for which tilings fit, and do not, as on this machine."""
        self.loops: dict[object, frozenset[str]] = {}
        """By the dims that are cut, the loops with which each box changes."""
        self.depths: dict[object, dict[int, int]] = {}
        """By the orders of loops, the number of loops around each kernel's compute."""
        self.levels: dict[object, dict[int, tuple[int, int]]] = {}
        """By the orders of loops, within how many of them each buffer stands."""
        self.around: dict[object, tuple[frozenset[str], ...]] = {}
        """By the orders of loops, those around each buffer's moves and each kernel's computes."""
        self.homes: dict[str, int] = {}
        """By name, where results of producers wait to be read."""
        self.reads: list[list[int]] = [[] for _ in self.units]
        """Per kernel, the buffers that its primitive reads."""
        self.makes: list[int | None] = [None for _ in self.units]
        """Per kernel, the buffer that its primitive writes; None for one in main memory."""
        self.readers: dict[str, int] = {}
        """By name, the kernel that reads a producer's result."""
        for number, unit in enumerate(self.units):
            for operand in unit.kernel.inputs:
                self.readers[operand.name] = number
        for number in range(len(self.units)):
            self._homes(number)
        for number in range(len(self.units)):
            self._inputs(number)
            self._output(number)

    @property
    def is_deep(self) -> bool:
        """True if an operand passes a memory on its way."""
        return any(place.staged for place in self.all)

    @cached_property
    def together(self) -> tuple[tuple[Place, ...], ...]:
        """For each buffer, those that are filled by the same transfers, itself included."""
        return tuple(
            tuple(
                other
                for other in self.all
                if other is place
                or (
                    place.fill is not None
                    and other.fill is not None
                    and other.unit == place.unit
                    and other.memory.name == place.memory.name
                    and (other.host or other.name) == (place.host or place.name)
                )
            )
            for place in self.all
        )

    @cached_property
    def is_bound(self) -> tuple[bool, ...]:
        """For each buffer, True if it or one filled with it follows a domain's own dims."""
        return tuple(
            any(
                self.units[member.unit].bound.keys() & axis.dims
                for member in members
                for axis in self.units[member.unit].axes[member.name]
            )
            for members in self.together
        )

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The keys by which a schedule names each buffer's slots."""
        way = {end for place in self.all for end in (place.source, place.target)}
        return tuple((p.name, p.memory.name if n in way else "") for n, p in enumerate(self.all))

    @cached_property
    def commands(self) -> tuple[CommandKind, ...]:
        """The transfers and computes: each kernel's transfers, then its computes."""
        kinds: list[CommandKind] = []
        for number, unit in enumerate(self.units):
            for index, place in enumerate(self.all):
                move = place.move
                if place.unit != number or move is None or place.host:
                    continue
                guests = [n for n, p in enumerate(self.all) if p.host == place.name]
                guests = [n for n in guests if self.all[n].unit == number]
                guests = [n for n in guests if self.all[n].memory.name == place.memory.name]
                ends = [self.all[n].source for n in (index, *guests)]
                sources = tuple(end for end in ends if end is not None)
                target = () if place.target is None else (place.target,)
                reads = sources if place.fill else (index,)
                fills = (index, *guests) if place.fill else target
                kinds.append(CommandKind(move.engine, move, number, reads, fills, index))
            result = self.makes[number]
            reads, fills = tuple(self.reads[number]), () if result is None else (result,)
            kinds.append(CommandKind(unit.primitive.engine, None, number, reads, fills))
        return tuple(kinds)

    @cached_property
    def meetings(self) -> tuple[Meeting, ...]:
        """The commands of which one may have to wait for the other, by which buffers: those of one
        engine come one after the other anyway."""
        meetings: list[Meeting] = []
        for number, kind in enumerate(self.commands):
            for other, theirs in enumerate(self.commands):
                shared = [(index, False) for index in kind.reads if index in theirs.fills]
                shared += [(index, True) for index in kind.fills if index in theirs.reads]
                if shared and kind.engine != theirs.engine:
                    meetings.append((number, other, tuple(shared)))
        return tuple(meetings)

    def _add(self, place: Place) -> int:
        self.all.append(place)
        return len(self.all) - 1

    def _memory(self, unit: Unit, name: str) -> Memory:
        return self.machine.memory_beside(unit.primitive, name)

    def _homes(self, reader: int) -> None:
        unit = self.units[reader]
        makers = {
            producer.kernel.output.name: (n, producer) for n, producer in enumerate(self.units[:-1])
        }
        for operand in unit.kernel.anchor.inputs:
            if operand.name not in makers:
                continue
            number, maker = makers[operand.name]
            written = maker.primitive.operands["output"]
            read = unit.primitive.operands[operand.role]
            homes = [name for name in written.places if name in read.places]
            if not homes:
                path = self._path(written.memory, read.memory, operand)
                homes = [waiting_memory(self.machine, path, read.memory)]
            home, *others = homes
            # What waits on the way lies there as an operand that comes from main memory does.
            layout = Layout.parse(operand.layout, len(operand.shape))
            granules = on_the_way(layout, operand.shape, operand.access, unit.primitive.whole)
            if home in read.places:
                granules = tuple(axis.granule(read.multiples) for axis in operand.access)
            if home in written.places:
                axes = zip(granules, maker.kernel.output.access, strict=True)
                granules = tuple(
                    max(granule, axis.granule(written.multiples)) for granule, axis in axes
                )
            self.homes[operand.name] = self._add(
                Place(
                    operand,
                    reader,
                    self._memory(unit, home),
                    staged=home not in read.places,
                    granules=granules,
                    made_by=number if home in written.places else None,
                    alternatives=tuple(self._memory(unit, name) for name in others),
                )
            )

    def _path(self, source: str, target: str, operand: Operand) -> tuple[Move, ...]:
        try:
            path = self.machine.path(source, target)
        except KeyError:
            path = None
        if path is None or self.machine.main in {move.target for move in path}:
            raise refuse(
                "kernel-chain",
                f"{operand.name} is computed in {source} and read in {target}, and no moves on the "
                "chip lead from one to the other",
                operand.name,
            )
        return path

    def _hops(
        self, operand: Operand, outer: str, storage: Storage, *, output: bool = False
    ) -> tuple[Move, ...]:
        """The moves between a memory and a primitive; none where the primitive has the operand
        there."""
        if outer in storage.places:
            return ()
        return path_of(operand, self.machine, outer, storage.memory, output=output)

    def _inputs(self, number: int) -> None:
        unit = self.units[number]
        hosts = hosts_of(unit.kernel, self.machine)
        for operand in dict.fromkeys(unit.kernel.inputs):
            storage = unit.primitive.operands[operand.role]
            source = self.homes.get(operand.name)
            home = self.machine.home(constant=operand.is_constant)
            outer = operand.resident_in or home
            outer = outer if source is None else self.all[source].memory.name
            host = hosts.get((storage.joined or "", home), "")
            path = self._hops(operand, outer, storage)
            others = storage.alternatives if source is None and len(path) == 1 else ()
            near = operand
            if operand in unit.kernel.anchor.inputs:
                near = beside(operand, unit.kernel.anchor, unit.primitive)
            levels = input_levels(self.machine, unit.primitive)
            for step, hop in enumerate(path, 1):
                last = step == len(path)
                near_view = near if last else operand
                apart = storage.own.windows_apart() if last else ()
                granules = [axis.granule(storage.multiples, apart) for axis in near_view.access]
                layout = Layout.parse(near_view.layout, len(near_view.shape))
                blocks = on_the_way(layout, near_view.shape, near_view.access, unit.primitive.whole)
                source = self._add(
                    Place(
                        near_view,
                        number,
                        self._memory(unit, hop.target),
                        fill=hop,
                        source=source,
                        staged=not last,
                        level=None if last else levels.get(hop.target, 0),
                        host=host,
                        granules=tuple(granules) if last else blocks,
                        alternatives=tuple(self._memory(unit, name) for name in others),
                        apart=apart,
                        stated_bytes=storage.element_bytes or 0,
                    )
                )
            if source is not None:
                self.reads[number].append(source)

    def _output(self, number: int) -> None:
        unit = self.units[number]
        operand, storage = unit.kernel.output, unit.primitive.operands["output"]
        home = self.homes.get(operand.name)
        outer = operand.resident_in or self.machine.main
        outer = outer if home is None else self.all[home].memory.name
        target = home
        path = self._hops(operand, outer, storage, output=True)
        others = storage.alternatives if home is None and len(path) == 1 else ()
        levels = result_levels(self.machine, unit.primitive) if home is None else {}
        for hop in reversed(path):
            last = hop.source == storage.memory
            granules = [axis.granule(storage.multiples) for axis in operand.access]
            target = self._add(
                Place(
                    operand,
                    number,
                    self._memory(unit, hop.source),
                    flush=hop,
                    target=target,
                    level=None if last else levels.get(hop.source),
                    granules=tuple(granules),
                    made_by=number if last else None,
                    alternatives=tuple(self._memory(unit, name) for name in others),
                )
            )
        self.makes[number] = target


def packed(of: Places, sizes: Sequence[int]) -> tuple[list[Memory], dict[str, float]] | None:
    """A memory for each buffer, and the room that is left in memories; None if they do not fit.

    Buffers without a choice come first, then the largest ones. Each takes the memory with most
    room; if so not all fit, the first with room.
    """
    places = of.all
    order = sorted(range(len(places)), key=lambda n: (len(places[n].memories), -sizes[n]))
    whole = dict[str, float]()  # Of a memory each primitive leaves as much as it says.
    for memory in (memory for place in places for memory in place.memories):
        room = inf if memory.room is None else memory.room
        whole[memory.name] = min(whole.get(memory.name, inf), room)
    for spread in (True, False):
        homes, rooms = dict[int, Memory](), dict(whole)
        for index in order:
            memories = places[index].memories
            of.rooms.compared |= len(memories) > 1
            fitting = [m for m in memories if of.rooms.fits(m.name, rooms[m.name], sizes[index])]
            if not fitting:
                break
            homes[index] = max(fitting, key=lambda m: rooms[m.name]) if spread else fitting[0]
            rooms[homes[index].name] -= sizes[index]
        else:
            return [homes[index] for index in range(len(places))], rooms
    return None
