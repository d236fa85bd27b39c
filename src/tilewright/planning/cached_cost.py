"""What a loop nest costs behind caches: traffic per level from footprints and reuse.

Going outwards from the register tile, an operand that does not depend on a loop is found again in
a cache if everything that one iteration of the loop touches fits there; one that depends on it is
read anew, halos excepted. Each level's traffic overlaps with the compute, as hardware prefetches
ahead; a tenth of everything is charged besides, for what does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.schedule import Schedule

USABLE = 0.8
"""Part of a cache that a kernel's working set may fill."""


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


def price(kernel: Kernel, machine: Machine, nest: Nest, compute: float) -> tuple[float, float]:
    """Cycles of a nest whose tiles compute for ``compute`` cycles, and bytes to main memory."""
    # Sizes of the dims within each loop's body, innermost last.
    bodies: list[dict[str, int]] = [dict(nest.extents)]
    for dim, _, step in nest.loops:
        bodies.append({**bodies[-1], dim: step})
    boxes = [[box_bytes(o, body) for o in kernel.operands] for body in bodies]
    worst, extra, main = compute, 0.1 * compute, 0.0
    caches = sorted(
        (m for m in machine.memories if m.managed == "hardware" and m.granule == 1),
        key=lambda m: m.bytes or 0,
    )
    # What misses one cache comes from the next.
    sources = [*caches[1:], machine.memory(machine.main)]
    for cache, source in zip(caches, sources, strict=True):
        moved = _misses(kernel, nest, boxes, USABLE * (cache.bytes or 0))
        main = moved
        cycles = moved / (source.bytes_per_cycle or float("inf"))
        worst = max(worst, cycles)
        extra += 0.1 * cycles
    return worst + extra, main


def _misses(kernel: Kernel, nest: Nest, boxes: list[list[int]], capacity: float) -> float:
    """Bytes that come through a cache's outer side."""
    total = 0.0
    depth = len(nest.loops)
    for number, operand in enumerate(kernel.operands):
        moved = float(boxes[depth][number])
        for level in range(depth - 1, -1, -1):
            dim, extent, step = nest.loops[level]
            trips = ceil(extent / step)
            fits = sum(boxes[level + 1]) <= capacity
            if dim not in operand.dims:
                moved *= 1 if fits else trips
            elif fits and moved <= boxes[level + 1][number]:
                moved = boxes[level][number]
            else:
                moved *= trips
        total += moved * (2 if operand.role == "output" else 1)
    return total
