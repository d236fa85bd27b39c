"""What products in pieces of bfloat16 cost: points are split, multiplied, and written.

Matrix tiles multiply 16 points by 16 output channels over 32 inputs at a time. Register tiles of
two by two of these read the weights of two vectors of output channels again and again from the
second cache, and points, which the taps of a window share; what that cache does not keep of them,
and weights for the first time in a block, come from behind it. The longer of products and reading
counts, and a part of the other. Points are split before; images that the second cache does not keep
are read and written so.
"""

from __future__ import annotations

from math import ceil, prod

from tilewright.machine import Machine, Primitive
from tilewright.numerics.pieces import PIECES
from tilewright.planning.cached_cost import box_bytes, cache_levels
from tilewright.planning.domain import Kernel
from tilewright.planning.pieces import POINTS, TILE_WORDS, Geometry
from tilewright.planning.schedule import Schedule

SPLIT_CYCLES = 8.0
"""To split two vectors of inputs."""

USABLE = 0.4
"""Part of the second cache that keeps a block's points, or images."""

EXPOSED = 0.6
"""Part of the shorter of products and reading that does not hide behind the other."""

WEIGHTS = 0.45
"""Part of the time to read a block's weights from behind the second cache that counts: the register
tiles before have asked for them."""

IMAGES = 0.8
"""The same of images."""


class PieceCost:
    """Prices schedules of one kernel.

    Constants were fitted on an Intel Xeon (Sapphire Rapids) to 187 schedules of 17 convolutions
    such as VGG's and ResNet's, within 12 % in the root mean square. That was before tiles were
    stored now and then, and weights lay in one stream; they were not fitted again.
    """

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
        total = sum(count * self._block(block) for count, block in shapes)
        total += IMAGES * self.images * self._far(self.images) / self.second[1]
        between = self.weights + self.images / blocks
        again = self.weights * (blocks - 1) * max(0.0, 1.0 - self.last[0] / between)
        main = self.weights + again + self.images
        waiting = (self.weights + again + max(0.0, self.images - self.last[0])) / self.last[1]
        return max(total, waiting) + self.costs.fetched * min(total, waiting), main

    def _block(self, block: dict[str, int]) -> float:
        """Cycles of one block of points by all output channels."""
        geometry = Geometry.of(self.source, {**self.extents, **block})
        vectors = ceil(self.extents["co"] / POINTS)
        tiles, pairs, parts = geometry.tiles, ceil(vectors / 2), ceil(geometry.tiles / 2)
        # Bytes of the reduction's tiles: of 16 points, or of a vector of output channels.
        depth = 4.0 * PIECES * TILE_WORDS * geometry.steps
        products = tiles * vectors * geometry.steps * self.block_cycles
        points = 4.0 * geometry.words
        near = pairs * depth * (2 * parts + tiles / len(geometry.taps))
        beyond = pairs * points * self._far(points + 4 * depth) + WEIGHTS * vectors * depth
        reading = near / self.behind + beyond / self.second[1]
        found = max(products, reading) + EXPOSED * min(products, reading)
        return found + SPLIT_CYCLES * geometry.words / (POINTS * PIECES)

    def _far(self, size: float) -> float:
        """Part of a working set that the second cache does not keep."""
        return max(0.0, 1.0 - USABLE * self.second[0] / size)
