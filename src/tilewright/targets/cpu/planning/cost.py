"""The cost of a loop nest behind caches: traffic per level from footprints and reuse.

Going outwards from the register tile, an operand that does not depend on a loop is found again in
a cache if everything that one iteration of the loop touches fits there; one that depends on it is
read anew, halos excepted. Reading overlaps with the compute, as hardware prefetches ahead: the
slowest counts in full, and a tenth of all else, for what does not overlap. Writing does not: a
cache fetches what is to be written, and makes room first, which nothing can foresee. Where sums
go on, of a reduction in parts, they have been read before: that is as other reading is, with a
latency for every part of a row. Weights that stream through the second cache, and residuals and
biases, which only the last sums meet, leave the result there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.planning.capabilities import facts_of, own_of
from tilewright.targets.cpu.planning.costs import CacheCosts

_WAYS = 8
"""The ways of a cache but the last: it keeps no more lines that lie a power of two apart."""

_LINE = 64
"""Bytes that are read together."""

_STREAMS = 4
"""The number of streams of weights that main memory is read in at full speed."""

_PASSING = ("weight", "residual", "bias")
"""Roles of operands that pass through the second cache without pushing sums out."""

_IMAGES = ("input", "residual", "output")
"""Roles of operands that are activations."""


@dataclass(frozen=True)
class Nest:
    """The loops of a schedule, outermost first: (dim, extent that it cuts, step)."""

    loops: tuple[tuple[str, int, int], ...]
    extents: Mapping[str, int]

    @classmethod
    def of(cls, kernel: Kernel, schedule: Schedule) -> Nest:
        """The loops that tile/build.py makes of a schedule."""
        size = dict(kernel.anchor.extents)
        loops: list[tuple[str, int, int]] = []
        for level in schedule.levels:
            for dim in level.order:
                step = level.size(dim, size[dim])
                if step < size[dim]:
                    loops.append((dim, size[dim], step))
                    size[dim] = step
        return cls(tuple(loops), kernel.anchor.extents)

    def tiles(self) -> Iterator[tuple[int, dict[str, int]]]:
        """Every size of tile that occurs, with how often; edges are exact."""
        options: dict[str, list[tuple[int, int]]] = {
            dim: [(1, extent)] for dim, extent in self.extents.items()
        }
        for dim, _, step in self.loops:
            cut: dict[int, int] = {}
            for count, extent in options[dim]:
                full, rest = divmod(extent, step)
                if full:
                    cut[step] = cut.get(step, 0) + count * full
                if rest:
                    cut[rest] = cut.get(rest, 0) + count
            options[dim] = [(count, size) for size, count in cut.items()]
        for choice in product(*options.values()):
            count = 1
            for each, _ in choice:
                count *= each
            yield count, {dim: size for dim, (_, size) in zip(options, choice, strict=True)}


def box_bytes(operand: Operand, sizes: Mapping[str, int]) -> int:
    """Bytes of an operand's box for a tile of these sizes, cut at the tensor's extent."""
    elements = 1
    dims = {name: (0, size) for name, size in sizes.items()}
    for axis, extent in zip(operand.access, operand.shape, strict=True):
        elements *= min(axis.interval(dims)[1], extent)
    return elements * operand.element_bytes


def _along(operand: Operand) -> tuple[str, int] | None:
    """The dim along which elements of a row-major operand lie side by side, and their bytes."""
    inner = operand.access[-1].dims if operand.access else ()
    if len(inner) != 1 or not Layout.parse(operand.layout, len(operand.shape)).row_major:
        return None
    return next(iter(inner)), operand.element_bytes


def _rows_of(operand: Operand) -> tuple[str, str, int, int] | None:
    """Return the dims of rows and along them, a row's extent and bytes of weights [ci, co]."""
    along = _along(operand) if operand.role == "weight" else None
    *_, rows = ((), *(axis.dims for axis in operand.access[:-1]))
    if along is None or len(rows) != 1 or rows[0] == along[0]:
        return None
    return rows[0], along[0], operand.shape[-1], along[1]


def _blocks(operand: Operand) -> Iterator[tuple[str, int]]:
    """Dims that an operand's layout cuts into blocks lying apart, with the elements of a block."""
    for factor in Layout.parse(operand.layout, len(operand.shape)).factors:
        dims = operand.access[factor.axis].dims
        if factor.modulus and factor.divisor == 1 and len(dims) == 1:
            yield next(iter(dims)), factor.modulus


def cache_levels(machine: Machine) -> list[tuple[int, float]]:
    """Bytes of every cache, the nearest first, and bytes per cycle from the level after it."""
    caches = sorted(
        (memory for memory in machine.caches if memory.granule == 1),
        key=lambda memory: memory.bytes or 0,
    )
    sources = [*caches[1:], machine.memory(machine.main)]
    return [
        (cache.bytes or 0, source.bytes_per_cycle or float("inf"))
        for cache, source in zip(caches, sources, strict=False)
    ]


def near_bytes(machine: Machine) -> int:
    """Bytes of the cache before the last one, in which scratch is to stay."""
    levels = cache_levels(machine)
    return levels[max(len(levels) - 2, 0)][0]


def part_kept(costs: CacheCosts, size: float, capacity: float) -> float:
    """Part of a working set that a cache keeps: of what exceeds its usable part, less and less.

    A little too much is not all lost: what is evicted is not always what comes next.
    """
    spare = max((1.0 - costs.usable) * capacity, 1.0)
    return min(1.0, max(0.0, (capacity - size) / spare))


class ScratchCost:
    """Prices of kernels that work in scratch: their caches, and the bytes of their operands."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.extents = extents = kernel.anchor.extents
        facts = facts_of(machine)
        self.costs, self.kept = facts.cache_costs, facts.weights_kept
        # Bytes of a cache, and bandwidth of the level after it.
        levels = cache_levels(machine)
        (self.near, self.second), self.last = (levels * 2)[:2], levels[-1]
        sizes = [(operand.role, box_bytes(operand, extents)) for operand in kernel.operands]
        self.weights = sum(size for role, size in sizes if role == "weight")
        self.images = sum(size for role, size in sizes if role in _IMAGES)


def runs(extent: int, step: int) -> list[tuple[int, int]]:
    """(count, size) of the parts of an extent that is cut by a step."""
    full, rest = divmod(extent, min(step, extent))
    return [(full, min(step, extent)), *([(1, rest)] if rest else [])]


def missed(size: float, room: float) -> float:
    """Part of what is used again and again that a cache of this room does not keep."""
    return max(0.0, 1.0 - room / size) if size > 0 else 0.0


class Caches:
    """Prices nests of one kernel on one machine; keeps what many nests share."""

    def __init__(
        self, kernel: Kernel, machine: Machine, primitive: Primitive | None = None
    ) -> None:
        self.operands = [
            (operand, operand.dims, tuple(sorted(operand.dims)), operand.role)
            for operand in kernel.operands
        ]
        self._passing = [n for n, (*_, role) in enumerate(self.operands) if role in _PASSING]
        facts = facts_of(machine)
        self.costs, self.kept = facts.cache_costs, facts.weights_kept
        self.levels = cache_levels(machine)
        self._boxes: dict[tuple[int, ...], int] = {}
        self._rows_of_boxes: dict[tuple[int, ...], list[int]] = {}
        self._columns = _along(kernel.output)
        # Blocks of channels lie side by side in images, rows' parts in matrices do not.
        self._parts = next((_along(o) for o in kernel.inputs if o.role == "input"), None)
        self._blocks = [
            (dim, block)
            for operand in kernel.inputs
            if operand.role == "weight"
            for dim, block in _blocks(operand)
            if dim not in kernel.anchor.reduction
        ]
        self._rows = [rows for o in kernel.inputs if (rows := _rows_of(o))]
        self._scratch = parse_expression(
            own_of(primitive).scratch if primitive is not None else "0"
        )

    def _crowding(self, sizes: Mapping[str, int], capacity: float) -> float:
        """Bytes of a cache that parts of weights' rows block beyond their own, a stride apart.

        Rows of 2 KB that are read in parts share every 32nd set of a cache of 64 KB a way: such
        parts leave it as if each were as long as the stride.
        """
        crowded = 0.0
        for rows, along, extent, element_bytes in self._rows:
            part, row = sizes[along] * element_bytes, extent * element_bytes
            if part < row:
                crowded += sizes[rows] * max(0, gcd(row, int(capacity) // _WAYS) - part)
        return crowded

    def price(self, nest: Nest, compute: float) -> tuple[float, float]:
        """Cycles when the tiles compute for ``compute`` cycles, and bytes to main memory."""
        # Sizes of the dims within each loop's body, innermost last.
        bodies: list[dict[str, int]] = [dict(nest.extents)]
        for dim, _, step in nest.loops:
            bodies.append({**bodies[-1], dim: step})
        boxes = [self._boxes_of(body) for body in bodies]
        totals = [sum(row) for row in boxes]
        for level, following in self._following(nest, boxes):
            totals[level] += following
        row_starts = self.costs.row_bytes / self._part(nest, bodies[-1])
        results = self._results(nest, boxes[0])
        run = self._run(nest, bodies[-1])
        pieces = 1.0 + self.costs.start_bytes / run
        part = self.costs.exposed
        hidden, exposed, main = (1.0 - part) * compute, part * compute, 0.0
        passing = [sum(row[number] for number in self._passing) for row in boxes]
        columns = list(zip(*boxes, strict=True))  # by operand, each body's bytes
        counts = [-(-extent // step) for _, extent, step in nest.loops]
        inside = [[dim in dims for dim, _, _ in nest.loops] for _, dims, _, _ in self.operands]
        for level, (capacity, bandwidth) in enumerate(self.levels):
            last = level == len(self.levels) - 1
            sizes, crowded = totals, 0.0
            if self._rows and not last:
                crowding = [self._crowding(body, capacity) for body in bodies]
                sizes = [total + more for total, more in zip(totals, crowding, strict=True)]
                crowded = crowding[-1]
            parts = [part_kept(self.costs, size, capacity) for size in sizes]
            results_kept = parts
            if level:
                # In the nearest cache what only passes through stays in the way of results, too.
                results_kept = [
                    part_kept(self.costs, size - through, capacity)
                    for size, through in zip(sizes, passing, strict=True)
                ]
            misses = [
                _misses(column, counts, within, parts, results_kept if role == "output" else parts)
                * (2 if role == "output" else 1)
                for column, within, (_, _, _, role) in zip(
                    columns, inside, self.operands, strict=True
                )
            ]
            main = sum(misses)
            weights = written = inputs = 0.0
            for moved, (_, _, _, role) in zip(misses, self.operands, strict=True):
                weights += moved if role == "weight" else 0.0
                written += moved if role == "output" else 0.0
                inputs += moved if role == "input" else 0.0
            others = main - weights - written
            if last:
                # Weights come from memory at every run; activations were written just before.
                far = (
                    max(0.0, 1.0 - self.costs.usable * capacity / (others + written))
                    if others + written
                    else 0.0
                )
                others, written = far * others, far * written
                weights = max(0.0, weights - self.kept)
                weights *= 1.0 + self.costs.crowded * max(0, self._streams(bodies[-1]) - _STREAMS)
            if level:
                # Sums that go on are read first, as tiles begin; then nothing is to be fetched.
                once = min(written, results)
                again = (part + self.costs.row_bytes / run) * (written - once)
                written = once * pieces + again + inputs * row_starts
            beside = self.costs.near if not level else self.costs.cold if last else part
            if crowded:
                # No prefetcher foresees parts that lie so far apart, and lines are read whole.
                beside = 1.0
                _, along, _, element_bytes = self._rows[0]
                weights *= max(1.0, _LINE / (bodies[-1][along] * element_bytes))
            paid = part * others + beside * weights + written
            hidden = max(hidden, (1.0 - part) * (weights + others) / bandwidth)
            exposed += paid / bandwidth
        return hidden + exposed, main

    def _following(self, nest: Nest, boxes: list[list[int]]) -> Iterator[tuple[int, int]]:
        """Bodies of loops with the bytes of weights that come next, and are fetched there ahead.

        Where loops over points run within those over the weights, the next block of these comes
        while the one before is in use (targets/cpu/primitives/ahead.py): both want room.
        """
        depth = len(nest.loops)
        for number, (_, dims, _, role) in enumerate(self.operands):
            changing = [level for level, (dim, _, _) in enumerate(nest.loops) if dim in dims]
            if role == "weight" and changing and changing[-1] + 1 < depth:
                yield from (
                    (level, boxes[depth][number]) for level in range(changing[-1] + 1, depth + 1)
                )

    def _results(self, nest: Nest, whole: list[int]) -> float:
        """Bytes of the result that are fetched and written once, edges as whole tiles."""
        number = next(n for n, (_, _, _, role) in enumerate(self.operands) if role == "output")
        dims, moved = self.operands[number][1], 2.0 * whole[number]
        for dim, extent, step in nest.loops:
            moved *= -(-extent // step) * step / extent if dim in dims else 1.0
        return moved

    def _run(self, nest: Nest, tile: Mapping[str, int]) -> float:
        """Bytes of the result that are written one after another; blocks of channels suffice."""
        if not self._columns:
            return float("inf")
        dim, element_bytes = self._columns
        along = bool(nest.loops) and nest.loops[-1][0] == dim
        return element_bytes * float(nest.extents[dim] if along else tile[dim])

    def _streams(self, tile: Mapping[str, int]) -> int:
        """Blocks of weights that a tile reads side by side."""
        streams = 1
        for dim, block in self._blocks:
            streams *= -(-tile[dim] // block)
        return streams

    def _part(self, nest: Nest, tile: Mapping[str, int]) -> float:
        """Bytes of one row of a matrix that are read one after another; whole rows suffice."""
        if not self._parts or tile[self._parts[0]] == nest.extents[self._parts[0]]:
            return float("inf")
        return self._parts[1] * float(tile[self._parts[0]])

    def _boxes_of(self, sizes: Mapping[str, int]) -> list[int]:
        """Bytes of every operand for a tile, whose dims come in the order of the kernel's."""
        tile = tuple(sizes.values())
        if tile not in self._rows_of_boxes:
            self._rows_of_boxes[tile] = self._new_boxes(sizes)
        return self._rows_of_boxes[tile]

    def _new_boxes(self, sizes: Mapping[str, int]) -> list[int]:
        boxes: list[int] = []
        for number, (operand, _, dims, role) in enumerate(self.operands):
            if role == "scratch":
                elements: Any = self._scratch.evaluate(sizes)
                boxes.append(int(elements) * operand.element_bytes)
                continue
            key = (number, *(sizes[dim] for dim in dims))
            if key not in self._boxes:
                self._boxes[key] = box_bytes(operand, sizes)
            boxes.append(self._boxes[key])
        return boxes


def _misses(
    boxes: Sequence[int],
    counts: Sequence[int],
    inside: Sequence[bool],
    parts: Sequence[float],
    parts_apart: Sequence[float],
) -> float:
    """Bytes of one operand that come through a cache's outer side.

    ``boxes`` are its bytes within each loop, outermost first; ``counts`` the iterations of loops,
    and ``inside`` whether it depends on them; ``parts`` what the cache keeps of what the body of a
    loop touches, and ``parts_apart`` of what comes again in loops that the operand does not depend
    on.
    """
    moved = float(boxes[-1])
    for level in range(len(counts) - 1, -1, -1):
        depends = inside[level]
        kept = (parts if depends else parts_apart)[level + 1]
        again = moved * counts[level]
        if not kept:
            moved = again
        elif not depends:
            moved = kept * moved + (1.0 - kept) * again
        elif moved <= boxes[level + 1]:
            moved = kept * boxes[level] + (1.0 - kept) * again
        else:
            moved = again
    return moved
