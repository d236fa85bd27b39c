"""Two levels of on-chip memory: a tile for the memory next to main memory, and tiles within it.

Where operands pass a memory on the way to the primitive's own (``Machine.path``), a kernel is cut
twice: into tiles for the memories next to main memory (the outer level), and each of these into the
tiles that the primitive computes at once (the inner one). Operands with a path of one move, and the
result, have buffers of the inner level alone.

Both levels are planned with what plans one. The **inner view** of a machine has each operand's last
move (the result's first) as if it led from main memory: on it the best inner tilings are found, as
if the outer memory held all. For each of them the **outer view** has the first moves, and a compute
that takes as long as the inner tiles of an outer one do, in the pipeline that their buffering
allows (``InnerTiling.cycles``). So every hop is priced, and the same search finds the outer tiles.

A reduction that the outer level cuts leaves its sums in the primitive's memory, so such an outer
tile is one inner tile along every dim of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tilewright.machine import Machine, Memory, Move, Primitive, Storage, parse_expression
from tilewright.machine.records import OperandRecord
from tilewright.planning.bounds import main_bandwidth
from tilewright.planning.domain import Kernel
from tilewright.planning.footprint import Bools, Floats, Ints, Use, uses_of
from tilewright.planning.pipeline import transfer_cycles
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.sizes import EFFORTS, tile_sizes
from tilewright.planning.space import Space, crossed, uncrossed

Path = tuple[Move, ...]


def paths_of(machine: Machine, primitive: Primitive) -> dict[str, Path]:
    """Role -> the moves that an operand takes, in the order in which data takes them."""
    paths: dict[str, Path] = {}
    for role, storage in primitive.operands.items():
        ends = (machine.main, storage.memory)
        paths[role] = machine.path(*(ends[::-1] if role == "output" else ends))
    return paths


def is_deep(machine: Machine, primitive: Primitive) -> bool:
    """Whether an operand of a primitive passes a memory on its way."""
    return any(len(path) > 1 for path in paths_of(machine, primitive).values())


def inner_view(machine: Machine, primitive: Primitive) -> Machine:
    """The machine as the inner tiles see it: each operand's move next to the primitive's memory
    leads from, the result's to, main memory. Of memories that results pass, half is left to other
    operands."""
    main, moves = machine.main, dict[tuple[str, str], Move]()
    passed = {move.target for move in paths_of(machine, primitive).get("output", ())[:-1]}
    sources: list[Memory] = []
    for role, path in paths_of(machine, primitive).items():
        if not path:
            continue
        inside = primitive.operands[role].memory
        ends = (inside, main) if role == "output" else (main, inside)
        hop = path[0] if role == "output" else path[-1]
        sources.append(machine.memory(hop.target if role == "output" else hop.source))
        moves.setdefault(ends, hop.model_copy(update={"source": ends[0], "target": ends[1]}))
    rates = {source.name: source.bytes_per_cycle for source in sources}
    limit = None if None in rates.values() else sum(rate or 0.0 for rate in rates.values())
    memories = tuple(
        memory.model_copy(
            update={"bytes_per_cycle": limit}
            if memory.name == main
            else {"bytes": _half(memory) if memory.name in passed else memory.bytes}
        )
        for memory in machine.memories
    )
    return machine.model_copy(update={"moves": tuple(moves.values()), "memories": memories})


def _half(memory: Memory) -> int | None:
    if memory.bytes is None or memory.room is None:
        return memory.bytes
    return memory.reserved + max(memory.room // 2 // memory.granule, 1) * memory.granule


class _StoredInParts(OperandRecord):
    """Of results as the outer level sees them: the inner level stores its tiles one by one."""

    def stores_parts(self) -> bool:
        """They are."""
        return True


def outer_view(
    machine: Machine, primitive: Primitive, multiples: Mapping[str, int]
) -> tuple[Machine, Primitive]:
    """The machine and the primitive as the outer tiles see them.

    ``multiples`` are the sizes of the inner tile. What has no buffer of the outer level passes
    through a memory without a limit; results leave it while others are computed.
    """
    main, moves = machine.main, dict[tuple[str, str], Move]()
    memories = {memory.name: memory for memory in machine.memories}
    operands: dict[str, Storage] = {}
    for role, path in paths_of(machine, primitive).items():
        storage = primitive.operands[role]
        outputs = role == "output"
        if not path:
            operands[role] = storage
            continue
        hop = path[-1] if outputs else path[0]
        inside = hop.target
        if outputs or len(path) == 1:
            inside = f"{storage.memory}-of-{role}" if outputs else f"{storage.memory}-of-inputs"
            memories[inside] = Memory(name=inside)
        ends = (inside, main) if outputs else (main, inside)
        moves.setdefault(ends, hop.model_copy(update={"source": ends[0], "target": ends[1]}))
        own = _StoredInParts() if outputs else OperandRecord()
        operands[role] = Storage(memory=inside, joined=storage.joined, own=own)
    view = machine.model_copy(
        update={"moves": tuple(moves.values()), "memories": tuple(memories.values())}
    )
    update = {"operands": operands, "multiples": dict(multiples), "limits": {}}
    return view, primitive.model_copy(update=update)


@dataclass(frozen=True)
class InnerTiling:
    """One way to compute an outer tile: the inner tile, the order of its loops, the buffering."""

    kernel: Kernel
    machine: Machine
    primitive: Primitive
    uses: tuple[Use, ...]
    """The operands on the inner view."""
    schedule: Schedule
    """The schedule on the inner view, of one level."""

    @property
    def level(self) -> Level:
        """The inner level."""
        return self.schedule.levels[0]

    def size(self, dim: str) -> int:
        """Size of the inner tile along a dim."""
        return self.level.size(dim, self.kernel.anchor.extents[dim])

    @property
    def loops(self) -> tuple[str, ...]:
        """All dims, those of the inner loops last, outermost first: of an outer tile smaller than
        the kernel any of them may have a loop."""
        order = self.level.order
        reduction = self.kernel.anchor.reduction
        rest = [dim for dim in self.kernel.anchor.extents if dim not in order]
        parallel = [dim for dim in (*rest, *order) if dim not in reduction]
        return (*parallel, *(dim for dim in (*rest, *order) if dim in reduction))

    def computes(self, tile: Mapping[str, Ints]) -> Floats:
        """Inner tiles of outer ones of these sizes."""
        count = np.ones(())
        for dim, size in tile.items():
            count = count * -(-size // self.size(dim))
        return count

    def _compute(self, tile: Mapping[str, Ints]) -> Floats:
        """Cycles of the computes of an outer tile together, edge tiles apart."""
        expression = parse_expression(self.primitive.cycles)
        issue = parse_expression(self.primitive.issue)
        trips = {dim: -(-size // self.size(dim)) for dim, size in tile.items()}
        last = {dim: size - (trips[dim] - 1) * self.size(dim) for dim, size in tile.items()}
        edged = [dim for dim in tile if np.any(last[dim] != np.minimum(self.size(dim), tile[dim]))]
        total = np.zeros(())
        for kind in product((False, True), repeat=len(edged)):
            short = dict(zip(edged, kind, strict=True))
            count, sizes = np.ones(()), dict[str, Any]()
            for dim in tile:
                full = np.minimum(self.size(dim), tile[dim])
                edge = last[dim] != full
                whole = trips[dim] - edge if dim in short else trips[dim]
                count = count * (edge if short.get(dim) else whole)
                sizes[dim] = last[dim] if short.get(dim) else full
            cycles = np.maximum(expression.evaluate(sizes), issue.evaluate(sizes))
            total = total + count * cycles
        return total

    def bytes_of(self, use: Use, tile: Mapping[str, Ints]) -> Floats:
        """Bytes of an operand's box of an inner tile, those that travel with it included."""
        total = np.zeros(())
        for other in self.uses:
            if use.name not in (other.name, other.host):
                continue
            count = np.full((), float(other.operand.element_bytes))
            for axis, extent in zip(other.operand.access, other.operand.shape, strict=True):
                span = np.ones((), np.int64)
                for dim, step in axis.terms:
                    size = tile.get(dim, np.ones((), np.int64))
                    inner = self.size(dim) if dim in tile else 1
                    span = span + abs(step) * (np.minimum(size, inner) - 1)
                count = count * np.minimum(span, extent)
            total = total + count
        return total

    def cycles(self, tile: Mapping[str, Ints]) -> Floats:
        """Cycles from an outer tile's first compute to the next outer tile's.

        From a compute to the next passes the longest of the compute, of each engine's loads of the
        operands whose boxes change, and of the result's store; an operand of one slot waits for the
        compute before it.
        """
        trips = {dim: -(-size // self.size(dim)) for dim, size in tile.items()}
        compute = self._compute(tile) / self.computes(tile)
        loops = [dim for dim in self.loops if dim in tile]
        moved = [use for use in self.uses if use.move is not None and not use.host]
        time = {use.name: transfer_cycles(use, self.bytes_of(use, tile)) for use in moved}
        total, around = np.zeros(()), np.ones(())
        everything = {use.name: np.ones((), np.bool_) for use in moved}
        for number, dim in enumerate(loops):
            changes = {
                use.name: np.any(
                    np.broadcast_arrays(
                        *(trips[d] > 1 for d in loops[number:] if self._depends(use, d)),
                        np.zeros((), np.bool_),
                    ),
                    axis=0,
                )
                for use in moved
            }
            advances = (trips[dim] - 1) * around
            total = total + advances * self._step(moved, time, changes, compute)
            around = around * trips[dim]
        # Where the outer level cuts the reduction, its results change with the last part alone.
        parts = np.ones(())
        for dim in self.kernel.anchor.reduction:
            parts = parts * -(-self.kernel.anchor.extents[dim] // tile.get(dim, np.ones(())))
        kept = {use.name: ~np.full((), use.output) for use in moved}
        between = self._step(moved, time, kept, compute)
        return total + between + (self._step(moved, time, everything, compute) - between) / parts

    def _depends(self, use: Use, dim: str) -> bool:
        """Whether a loop over a dim changes what of an operand is moved."""
        others = [other for other in self.uses if use.name in (other.name, other.host)]
        return any(dim in other.operand.dims for other in others)

    def _step(
        self,
        moved: Sequence[Use],
        time: Mapping[str, Floats],
        changes: Mapping[str, Bools],
        compute: Floats,
    ) -> Floats:
        step = compute
        engines: dict[str, Floats] = {}
        for use in moved:
            assert use.move is not None
            took = changes[use.name] * time[use.name]
            engines[use.move.engine] = engines.get(use.move.engine, 0.0) + took
            if self.schedule.slots(use.name) == 1:
                step = np.maximum(step, np.where(changes[use.name], compute + took, 0.0))
        own = engines.pop(self.primitive.engine, None)
        if own is not None:
            step = np.maximum(step, compute + own)
        for busy in engines.values():
            step = np.maximum(step, busy)
        return step

    def ends(self, tile: Mapping[str, Ints]) -> Floats:
        """Cycles of the first inner tile's loads, and of the last result on its way to the move
        that stores it in main memory."""
        paths = paths_of(self.machine, self.primitive)
        total = np.zeros(())
        for use in self.uses:
            path = paths[use.operand.role]
            if use.host or len(path) < 2:
                continue
            for hop in path[:-1] if use.output else path[1:]:
                size = self.bytes_of(use, tile)
                total = total + hop.latency + size / hop.bytes_per_cycle
        return total

    def last_store(self, tile: Mapping[str, Ints]) -> Floats:
        """Bytes of an outer tile's result that need not be stored when the last compute ends."""
        output = next(use for use in self.uses if use.output)
        size = self.bytes_of(output, tile)
        count = np.ones(())
        for dim in tile:
            if dim in output.operand.dims:
                count = count * -(-tile[dim] // self.size(dim))
        return size * (count - 1)

    def staged(self, names: Mapping[str, int]) -> tuple[tuple[str, str, int], ...]:
        """Slots of the buffers on the way: ``names`` has those of the outer level; results get two
        slots where the memories have room for them."""
        paths = paths_of(self.machine, self.primitive)
        slots_by_buffer: list[tuple[str, str, int]] = []
        for use in self.uses:
            path = paths[use.operand.role]
            if use.output:
                slots_by_buffer += [
                    (use.name, hop.target, self._passing(hop.target)) for hop in path[:-1]
                ]
            else:
                slots = names.get(use.host or use.name, 1)
                slots_by_buffer += [
                    (use.name, hop.target, slots) for hop in path[:1] if len(path) > 1
                ]
                slots_by_buffer += [(use.name, hop.target, 2) for hop in path[1:-1]]
        return tuple(slots_by_buffer)

    def _passing(self, memory: str) -> int:
        """Slots for results that pass a memory; 0 where not even one fits."""
        room = self.machine.memory_beside(self.primitive, memory).room
        tile = {dim: np.array(extent) for dim, extent in self.kernel.anchor.extents.items()}
        output = next(use for use in self.uses if use.output)
        granule = self.machine.memory(memory).granule
        size = -(-int(self.bytes_of(output, tile)) // granule) * granule
        others = 0
        for use in self.uses:
            if use.memory.name == memory and not use.output:
                own = -(-int(self.bytes_of(use, tile)) // granule) * granule
                others += 0 if use.host else own * self.schedule.slots(use.name)
        return 2 if room is None else max(min((room - others) // max(size, 1), 2), 0)

    @property
    def fits(self) -> bool:
        """Whether results fit the memories that they pass."""
        paths = paths_of(self.machine, self.primitive)
        return all(self._passing(hop.target) for hop in paths["output"][:-1])

    def within(self, outer: Schedule) -> Schedule:
        """The schedule of both levels: the outer one's tiles, cut as this one says."""
        first = next(p[0] for p in paths_of(self.machine, self.primitive).values() if len(p) > 1)
        tile = dict(outer.levels[0].tile)
        fine = tuple((dim, min(self.size(dim), size)) for dim, size in tile.items())
        inner = dict(fine)
        order = tuple(dim for dim in self.loops if inner[dim] < tile[dim])
        return Schedule(
            self.primitive.name,
            (
                Level(first.target, outer.levels[0].tile, outer.levels[0].order),
                Level(self.level.memory, fine, order),
            ),
            self.schedule.buffers,
            staged=self.staged(dict(outer.buffers)),
        )


@dataclass
class OuterSpace(Space):
    """The outer tilings of a kernel around one inner tiling."""

    inner: InnerTiling | None = None

    @property
    def tiling(self) -> InnerTiling:
        """The inner tiling."""
        assert self.inner is not None
        return self.inner

    def compute(self, tile: Mapping[str, Ints]) -> Floats:
        """Cycles of outer tiles of these sizes."""
        return self.tiling.cycles(tile)

    def allowed(self) -> Bools:
        """Whether sums stay where they are: a tile of a cut reduction is one tile of the result."""
        reduction, cut = self.kernel.anchor.reduction, np.zeros(self.rows, np.bool_)
        single = np.ones(self.rows, np.bool_)
        for dim in self.index:
            if dim in reduction:
                cut |= self.trips(dim) > 1
            else:
                single &= self.size(dim) <= self.tiling.size(dim)
        return super().allowed() & (single | ~cut)

    def computes(self, row: int) -> float:
        """Computes of one tiling."""
        tile = {dim: self.size(dim)[row : row + 1] for dim in self.index}
        tiles = prod(float(self.trips(dim)[row]) for dim in self.index)
        return tiles * float(self.tiling.computes(tile)[0])

    def least(self, moved: float) -> float:
        """Cycles that so many bytes take to pass main memory."""
        return moved / main_bandwidth(self.machine)

    def ends(self, row: int) -> float:
        """Cycles that the outer view leaves out at the ends of one tiling, less those that it has
        too many: results leave tile by tile."""
        tile = {dim: self.size(dim)[row] for dim in self.index}
        output = next(use for use in self.uses if use.output)
        late = 0.0
        if output.move is not None:
            trips = {dim: int(self.trips(dim)[row]) for dim in self.index}
            last = {d: self.extents[d] - (trips[d] - 1) * size for d, size in tile.items()}
            late = float(self.tiling.last_store(last)) / output.move.bytes_per_cycle
            # What the last outer tile stores while it is computed.
            late = min(late, float(self.tiling.cycles(last)))
        return float(self.tiling.ends(tile)) - late


def outer_space(inner: InnerTiling, max_rows: int) -> OuterSpace | None:
    """All outer tilings around an inner one that fit; None if none does."""
    kernel = inner.kernel
    multiples = {dim: inner.size(dim) for dim in kernel.anchor.extents}
    view, primitive = outer_view(inner.machine, inner.primitive, multiples)
    uses = uses_of(kernel, view, primitive)
    for cut, small in EFFORTS[:2]:
        sizes = tile_sizes(kernel, primitive, uses, cut=cut, small=small)
        plain = uncrossed(kernel, view, primitive, uses, sizes)
        known = {
            column.name: getattr(plain, column.name) for column in fields(plain) if column.init
        }
        space = crossed(OuterSpace(**known, inner=inner), max_rows)
        if space.rows:
            assert isinstance(space, OuterSpace)
            return space
    return None
