"""The cost of one tiling of a chain: its buffers, and its commands on the machine's timing core.

Where a producer's dims follow from the last kernel's (links.py), every box of every operand is a
product of intervals, each of which changes with one loop at most. So a tiling's commands are known
before there is a program: how many bytes each transfer moves, how long each compute takes, and what
each waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.machine import Machine, Memory, Move, Primitive, parse_expression
from tilewright.numerics.element_types import ELEMENT_BYTES
from tilewright.planning.bounds import main_bandwidth
from tilewright.planning.domain import Affine, Kernel, Operand
from tilewright.planning.footprint import Ints, keeps_sums, run_elements, tile_positions
from tilewright.planning.links import links_of, renamed_axes
from tilewright.simulate.commands import TIMED, TimedArray, transfer_bytes
from tilewright.simulate.timing import simulate


@dataclass(frozen=True)
class Unit:
    """One kernel of a chain, and what computes it."""

    kernel: Kernel
    """Without its producers."""
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
        if unit.primitive.sizes == "fixed":
            raise refuse(
                "kernel-chain",
                f"instances of {unit.primitive.name} have fixed sizes, and tiles of a chain differ "
                "at the edges",
                kernel.symbol,
            )
    return units


def _units(
    kernel: Kernel,
    primitives: Any,
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
class Span:
    """An interval in each iteration of a loop; of no loop (""), one interval."""

    loop: str
    start: Ints
    size: Ints

    def cut(self, extent: int) -> Span:
        """The part within ``[0, extent)``."""
        first = np.clip(self.start, 0, extent)
        return Span(self.loop, first, np.clip(self.start + self.size, first, extent) - first)


@dataclass
class Buffer:
    """A buffer of a tiling."""

    name: str
    unit: int
    operand: Operand
    memory: Memory
    move: Move | None
    """Between main memory and the buffer; None for an internal one."""
    host: str
    lengths: Sequence[Span]
    """Of its box, per axis."""
    bytes: int
    """Of one slot."""
    depth: int
    """How many of the loops stand around it."""
    output: bool = False
    slots: int = 1


@dataclass
class Tiling:
    """Tile sizes of the last kernel's dims, and the order of its loops, outermost first."""

    units: tuple[Unit, ...]
    machine: Machine
    tile: Mapping[str, int]
    order: tuple[str, ...]
    boxes: dict[tuple[int, str], list[Span]] = field(
        default_factory=dict[tuple[int, str], "list[Span]"]
    )
    """Of each kernel's operands, the boxes' lengths; those of all orders of a tile are the same."""
    buffers: list[Buffer] = field(default_factory=list[Buffer])

    def __post_init__(self) -> None:
        last = self.units[-1].kernel.anchor
        self.extents: dict[str, int] = {}
        for unit in self.units:
            for dim, extent in unit.kernel.anchor.extents.items():
                self.extents.setdefault(unit.names.get(dim, dim), extent)
        self.trips = [-(-last.extents[dim] // self.tile[dim]) for dim in self.order]

    @property
    def count(self) -> int:
        """Number of tiles."""
        return prod(self.trips)

    @property
    def tile_points(self) -> int:
        """Points of one tile."""
        return prod(self.tile.values())

    @cached_property
    def spans(self) -> dict[str, Span]:
        """The intervals of all dims; refuses those that change with two loops."""
        spans = {d: Span("", np.zeros(1, np.int64), np.full(1, n)) for d, n in self.extents.items()}
        for dim in self.order:
            spans[dim] = Span(dim, *tile_positions(self.extents[dim], self.tile[dim]))
        for unit in reversed(self.units):
            for dim, axis in unit.bound.items():
                spans[dim] = self.span(axis, spans).cut(self.extents[dim])
        return spans

    def span(self, axis: Affine, spans: Mapping[str, Span]) -> Span:
        """The interval of an expression."""
        loops = dict.fromkeys(spans[name].loop for name, c in axis.terms if c and spans[name].loop)
        if len(loops) > 1:
            raise refuse("kernel-chain", f"{axis} changes with {' and '.join(loops)}")
        start, size = axis.interval_columns(lambda name: (spans[name].start, spans[name].size))
        start, size = np.atleast_1d(np.asarray(start, np.int64), np.asarray(size, np.int64))
        for name in axis.dims:  # Of a domain that is empty at the edge, nothing is read.
            size = np.where(spans[name].size > 0, size, 0)
        return Span(next(iter(loops), ""), start, size)

    def lengths(self, number: int, operand: Operand) -> list[Span]:
        """Of an operand's box, the part inside its tensor, per axis."""
        key = number, operand.name
        if key not in self.boxes:
            axes = zip(self.units[number].axes[operand.name], operand.shape, strict=True)
            self.boxes[key] = [self.span(axis, self.spans).cut(extent) for axis, extent in axes]
        return self.boxes[key]

    def depth(self, lengths: Iterable[Span]) -> int:
        """Within how many loops a box stands."""
        loops = {length.loop for length in lengths}
        return max((n for n, dim in enumerate(self.order, 1) if dim in loops), default=0)

    def fits(self) -> bool:
        """Whether primitives take the tiles and all buffers fit; makes the buffers, with two slots
        where these fit, too."""
        if not all(self._takes(unit) for unit in self.units):
            return False
        self.buffers = list(self._buffers())
        rooms: dict[str, int] = {}
        for buffer in self.buffers:
            room = buffer.memory.room
            if room is not None:
                rooms[buffer.memory.name] = rooms.get(buffer.memory.name, room) - buffer.bytes
        if any(room < 0 for room in rooms.values()):
            return False
        for buffer in self._growing():
            room = rooms.get(buffer.memory.name)
            if room is None or room >= buffer.bytes:
                buffer.slots = 2
                if room is not None:
                    rooms[buffer.memory.name] = room - buffer.bytes
        for buffer in self.buffers:
            if buffer.host:
                buffer.slots = next(b.slots for b in self.buffers if b.name == buffer.host)
        return True

    def _takes(self, unit: Unit) -> bool:
        """Whether tiles of a kernel keep to its primitive's limits, and to dims that stay whole."""
        for dim, extent in unit.kernel.anchor.extents.items():
            sizes = self.spans[unit.names.get(dim, dim)].size
            if int(sizes.max()) > unit.primitive.limits.get(dim, extent):
                return False
            if dim in unit.primitive.whole and int(sizes.min()) < extent:
                return False
        return True

    def _growing(self) -> list[Buffer]:
        """The buffers that gain by a second slot, those of the largest transfers first."""
        engines = [unit.primitive.engine for unit in self.units]
        refilled = [b for b in self.buffers if b.depth and not b.host]
        apart = [b for b in refilled if b.move is not None or engines[b.unit] != engines[-1]]
        moved = {b.name: self.visits(b).size * b.bytes for b in apart}
        return sorted(apart, key=lambda b: (b.move is None, -moved[b.name], b.name))

    def _buffers(self) -> Iterable[Buffer]:
        for number, unit in enumerate(self.units):
            hosts = {o.role: o.name for o in reversed(unit.kernel.inputs)}
            for operand in unit.kernel.operands:
                output = operand is unit.kernel.output
                if output and number < len(self.units) - 1:
                    continue  # It is a buffer of the kernel that reads it.
                storage = unit.primitive.operands[operand.role]
                memory = self.machine.memory_beside(unit.primitive, storage.memory)
                lengths = self.lengths(number, operand)
                depth = self.depth(lengths)
                if any(unit.bound.keys() & axis.dims for axis in unit.axes[operand.name]):
                    depth = max(depth, self.unit_depth(number))
                maker = self._maker(operand, storage.memory)
                sums = unit if output else maker
                element = operand.element_bytes
                if sums is not None and keeps_sums(sums.kernel, sums.primitive):
                    element = max(element, ELEMENT_BYTES[self.machine.accumulator])
                size = element
                granules = [axis.granule(storage.multiples) for axis in operand.access]
                if maker is not None:
                    written = maker.primitive.operands["output"].multiples
                    axes = zip(granules, maker.kernel.output.access, strict=True)
                    granules = [max(granule, axis.granule(written)) for granule, axis in axes]
                for granule, length in zip(granules, lengths, strict=True):
                    size *= -(-int(length.size.max()) // granule) * granule
                yield Buffer(
                    operand.name,
                    number,
                    operand,
                    memory,
                    None if maker is not None else self._move(operand, memory.name, output),
                    hosts.get(storage.joined, "") if storage.joined else "",
                    lengths,
                    -(-size // memory.granule) * memory.granule,
                    depth,
                    output,
                )

    def _maker(self, operand: Operand, memory: str) -> Unit | None:
        """The kernel of the chain that makes an operand in the memory where it is read."""
        maker = next((u for u in self.units[:-1] if u.kernel.output.name == operand.name), None)
        home = memory if maker is None else maker.primitive.operands["output"].memory
        if home != memory:
            raise refuse(
                "kernel-chain",
                f"{operand.name} is made in {home} and read in {memory}",
                operand.name,
            )
        return maker

    def _move(self, operand: Operand, memory: str, output: bool) -> Move | None:
        main = self.machine.main
        path = self.machine.path(*((memory, main) if output else (main, memory)))
        if len(path) > 1:
            raise refuse(
                "plan-path",
                f"{operand.name} passes {path[0].target} on its way, and chains are planned for "
                "one memory of an operand's path",
                operand.name,
            )
        return path[0] if path else None

    def unit_depth(self, number: int) -> int:
        """Within how many loops a kernel of the chain computes."""
        if number == len(self.units) - 1:
            return len(self.order)
        name = self.units[number].kernel.output.name
        for reader, unit in enumerate(self.units):
            for operand in unit.kernel.anchor.inputs:
                if operand.name == name:
                    return self.depth(self.lengths(reader, operand))
        raise KeyError(name)

    @cached_property
    def steps(self) -> Ints:
        """Per loop and tile: the number of the loop's iteration."""
        if not self.trips:
            return np.zeros((0, 1), np.int64)
        return np.indices(self.trips).reshape(len(self.trips), -1)

    def at(self, depth: int) -> Ints:
        """The tiles before which what stands within ``depth`` loops happens."""
        return np.flatnonzero((self.steps[depth:] == 0).all(axis=0))

    def visits(self, buffer: Buffer) -> Ints:
        """The tiles before which a buffer is filled, or behind which it is stored."""
        return self.at(buffer.depth)

    def column(self, span: Span, tiles: Ints) -> Ints:
        """The sizes of an interval at some tiles."""
        if not span.loop:
            return np.full(len(tiles), span.size[0])
        return span.size[self.steps[self.order.index(span.loop)][tiles]]

    def moved(self, buffer: Buffer) -> Ints:
        """Bytes of each transfer of a buffer, as the move's bandwidth counts them."""
        tiles = self.visits(buffer)
        lengths = [self.column(span, tiles) for span in buffer.lengths]
        size = np.full(len(tiles), buffer.operand.element_bytes)
        for length in lengths:
            size = size * length
        move = buffer.move
        assert move is not None
        if move.transaction == 1 and not move.efficiency:
            return size
        run = run_elements(buffer.operand, lengths) * buffer.operand.element_bytes
        return transfer_bytes(move, run, size // np.maximum(run, 1))

    @cached_property
    def transfers(self) -> dict[str, Ints]:
        """By buffer, the bytes of its transfers, with those of buffers that travel along."""
        moved = {b.name: self.moved(b) for b in self.buffers if b.move is not None}
        for buffer in self.buffers:
            if buffer.host and buffer.move is not None:
                moved[buffer.host] = moved[buffer.host] + moved.pop(buffer.name)
        return moved

    def computing(self, number: int) -> Ints:
        """Cycles of each compute of a kernel of the chain."""
        unit = self.units[number]
        tiles = self.at(self.unit_depth(number))
        sizes = {
            dim: self.column(self.spans[unit.names.get(dim, dim)], tiles)
            for dim in unit.kernel.anchor.extents
        }
        cycles: Any = parse_expression(unit.primitive.cycles).evaluate(sizes)
        least: Any = parse_expression(unit.primitive.issue).evaluate(sizes)
        whole = np.ceil(np.maximum(cycles, least))
        return np.broadcast_to(whole, (len(tiles),)).astype(np.int64)

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes through main memory."""
        return int(sum(size.sum() for size in self.transfers.values()))

    @cached_property
    def bound(self) -> float:
        """Cycles that the busiest engine, or main memory, takes at least."""
        busy: dict[str, float] = {}
        for buffer in self.buffers:
            if buffer.name in self.transfers and buffer.move is not None:
                cycles = self.transfers[buffer.name].sum() / buffer.move.bytes_per_cycle
                busy[buffer.move.engine] = busy.get(buffer.move.engine, 0.0) + float(cycles)
        for number, unit in enumerate(self.units):
            engine = unit.primitive.engine
            busy[engine] = busy.get(engine, 0.0) + float(self.computing(number).sum())
        return max(*busy.values(), self.moved_bytes / main_bandwidth(self.machine))

    def cycles(self) -> float:
        """What the machine's timing core says of the commands."""
        return float(simulate(self.commands(), self.machine).cycles)

    def commands(self) -> TimedArray:
        """The commands in program order, with what each waits for."""
        items = list(self._items())
        keys = np.concatenate([item.tiles * (2 * len(items)) + item.place for item in items])
        order = np.argsort(keys, kind="stable")
        engines = [engine.name for engine in self.machine.engines]
        table = np.zeros(len(keys), TIMED)
        table["move"] = -1
        first = np.cumsum([0, *(len(item.tiles) for item in items)])
        for item, at in zip(items, first, strict=False):
            rows = slice(int(at), int(at) + len(item.tiles))
            table["engine"][rows] = engines.index(item.engine)
            if item.move is None:
                table["cycles"][rows] = item.amount
            else:
                table["move"][rows] = self.machine.moves.index(item.move)
                table["bytes"][rows] = item.amount
                table["latency"][rows] = item.move.latency
        position = np.zeros(len(keys), np.int64)
        ordered = table["engine"][order]
        for engine in range(len(engines)):
            mine = order[ordered == engine]
            position[mine] = np.arange(1, len(mine) + 1)
        for item, at in zip(items, first, strict=False):
            for other, rows in item.waits(items, self):
                known = rows >= 0
                counts = np.where(known, position[first[other] + np.maximum(rows, 0)], 0)
                engine = engines.index(items[other].engine)
                if items[other].engine != item.engine:
                    column = table["waits"][int(at) : int(at) + len(item.tiles), engine]
                    np.maximum(column, counts, out=column)
        return table[order]

    def _items(self) -> Iterable[_Item]:
        place = 0
        for number, unit in enumerate(self.units):
            loads = [b for b in self.buffers if b.unit == number and b.move is not None]
            for buffer in loads:
                if not buffer.output and buffer.name in self.transfers:
                    assert buffer.move is not None
                    held = [b for b in self.buffers if buffer.name in (b.name, b.host)]
                    yield _Item(
                        self.visits(buffer), place, buffer.move.engine,
                        self.transfers[buffer.name], buffer.move, fills=held,
                    )  # fmt: skip
                    place += 1
            reads = [b for b in self.buffers if b.unit == number and not b.output]
            name = unit.kernel.output.name
            made = [b for b in self.buffers if b.name == name]
            yield _Item(
                self.at(self.unit_depth(number)), place, unit.primitive.engine,
                self.computing(number), None, reads, made,
            )  # fmt: skip
            place += 1
        (output,) = [b for b in self.buffers if b.output]
        if output.move is not None:
            yield _Item(
                self.visits(output), place, output.move.engine,
                self.transfers[output.name], output.move, [output],
            )  # fmt: skip


@dataclass
class _Item:
    """A command of a tiling in all its executions."""

    tiles: Ints
    place: int
    engine: str
    amount: Ints
    """Bytes of transfers, cycles of computes."""
    move: Move | None
    reads: Sequence[Buffer] = ()
    fills: Sequence[Buffer] = ()

    def waits(self, items: Sequence[_Item], tiling: Tiling) -> Iterable[tuple[int, Ints]]:
        """Another command, and per execution which of its executions must be done before."""
        for number, other in enumerate(items):
            if other is self:
                continue
            for buffer in self.reads:
                if any(buffer is filled for filled in other.fills):
                    yield number, np.searchsorted(other.tiles, self.tiles, side="right") - 1
            for buffer in self.fills:
                if any(buffer is read for read in other.reads):
                    visits = tiling.visits(buffer)
                    seen = np.searchsorted(visits, other.tiles, side="right") - 1
                    mine = np.searchsorted(visits, self.tiles, side="right") - 1
                    yield number, np.searchsorted(seen, mine - buffer.slots, side="right") - 1
