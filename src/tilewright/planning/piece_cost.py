"""What products in pieces of bfloat16 cost: points are split, multiplied, and written.

Matrix tiles multiply 16 points by 16 output channels over 32 inputs at a time. A register tile is
two by two of these, and reads each of its operands' tiles for every step: from the first cache what
another tap has read, else from the second, or from behind it what that does not keep. Points are
split before, results are written behind the products; neither hides.
"""

from __future__ import annotations

from math import ceil, prod

from tilewright.machine import Machine, Primitive
from tilewright.numerics.pieces import PIECES
from tilewright.planning.cached_cost import box_bytes, cache_levels
from tilewright.planning.domain import Kernel
from tilewright.planning.pieces import TILE_WORDS, Geometry
from tilewright.planning.schedule import Schedule

SPLIT_CYCLES = 10.0
"""To split two vectors of inputs."""

CALL_CYCLES = 600.0
"""Of a register tile beside its products."""

RESULT_CYCLES = 5.0
"""To write one vector of results."""

USABLE = 0.7
"""Part of the second cache that keeps a block's points, or weights."""

EXPOSED = 0.3
"""Part of the time to read operands that does not hide behind products."""


class PieceCost:
    """Prices schedules of one kernel."""

    def __init__(self, kernel: Kernel, machine: Machine, primitive: Primitive) -> None:
        self.extents = extents = kernel.anchor.extents
        self.costs = machine.cache_costs
        self.block_cycles = primitive.block_cycles
        self.source = next(o for o in kernel.anchor.inputs if o.role == "input").access
        levels = cache_levels(machine)
        (_, self.behind), self.second = (levels * 2)[:2]
        self.last = levels[-1]
        operands = kernel.operands
        self.weights = sum(box_bytes(o, extents) for o in operands if o.role == "weight")
        images = [o for o in operands if o.role in ("input", "residual", "output")]
        self.images = sum(box_bytes(o, extents) for o in images)

    def price(self, schedule: Schedule) -> tuple[float, float]:
        """Cycles, and bytes to and from main memory."""
        sizes = dict(schedule.levels[-1].tile)
        inside = [d for d in ("oh", "ow") if d in sizes] or ["m" if "m" in sizes else "n"]
        outer = prod(self.extents[d] for d in sizes if d not in (*inside, "co"))
        shapes: list[tuple[int, dict[str, int]]] = [(outer, {})]
        for dim in inside:
            full, rest = divmod(self.extents[dim], sizes[dim])
            runs = [(full, sizes[dim]), *([(1, rest)] if rest else [])]
            shapes = [(n * c, {**s, dim: size}) for n, s in shapes for c, size in runs]
        blocks = sum(count for count, _ in shapes)
        total = sum(count * self._block(block, blocks) for count, block in shapes)
        between = self.weights + self.images / blocks
        missed = max(0.0, 1.0 - self.last[0] / between) if between else 0.0
        again = self.weights * (blocks - 1) * missed
        main = self.weights + again + self.images
        waiting = (self.weights + again + max(0.0, self.images - self.last[0])) / self.last[1]
        return max(total, waiting) + self.costs.fetched * min(total, waiting), main

    def _block(self, block: dict[str, int], blocks: int) -> float:
        geometry = Geometry.of(self.source, {**self.extents, **block})
        vectors, steps = ceil(self.extents["co"] / 16), geometry.steps
        tiles, tile = geometry.tiles, 4 * PIECES * TILE_WORDS
        pairs, parts = ceil(vectors / 2), ceil(geometry.tiles / 2)
        products = tiles * vectors * steps * self.block_cycles + pairs * parts * CALL_CYCLES
        points, weights = 4.0 * geometry.words, float(tile * steps * 2)
        room = USABLE * self.second[0]
        far = max(0.0, 1.0 - room / (points + 2 * weights))
        # Taps of one group of inputs read the same points.
        taps = len(geometry.taps)
        read = pairs * (points + 2 * tiles * tile * steps / taps)
        read += pairs * parts * weights
        reading = read / self.behind
        # Weights that all blocks read come from behind the second cache for each of them.
        beyond = pairs * points * far + (vectors * tile * steps if blocks > 1 else 0)
        reading += beyond / self.second[1]
        found = max(products, reading) + EXPOSED * min(products, reading)
        found += SPLIT_CYCLES * geometry.words / (16 * PIECES)
        return found + RESULT_CYCLES * geometry.rows * geometry.columns * vectors
