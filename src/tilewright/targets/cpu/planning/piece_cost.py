"""The cost of products in pieces of bfloat16: points are split, multiplied, and written.

Matrix tiles multiply 16 points by 16 output channels over 32 inputs at a time. Register tiles of
two by two of these read the weights of two vectors of output channels again and again from the
second cache, and points, which the taps of a window share; what that cache does not keep of them,
and weights for the first time in a block, come from the level after it. The longer of products and
reading counts, and a part of the other. Points are split before, and weights of three pieces
meanwhile; images that the second cache does not keep are read and written so.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from tilewright.machine import Machine, Primitive
from tilewright.numerics.pieces import THREE, TWO
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.planning.cost import ScratchCost, missed, runs
from tilewright.targets.cpu.planning.pieces import POINTS, TILE_WORDS, Geometry, pieces_of

USABLE = 0.4
"""Part of the second cache that keeps a block's points, or images."""

IMAGES = 0.8
"""Part, from 0 to 1, of the time to read images from beyond the second cache that counts."""


@dataclass(frozen=True)
class Costs:
    """The fitted costs for one number of pieces."""

    split: float
    """Cycles to split two vectors of inputs."""
    weight: float
    """Cycles to split two vectors of weights between products; 0 if they were split before."""
    result: float
    """Cycles to look at, add to, and write a vector of results."""
    exposed: float
    """Part of the shorter of products and reading that does not hide behind the other."""
    fetched: float
    """Part of the time to read a block's weights from beyond the second cache that counts: the
    register tiles before have asked for them, and splitting waits for them besides."""


COSTS = {TWO: Costs(8.0, 0.0, 0.0, 0.6, 0.45), THREE: Costs(15.0, 12.5, 8.5, 0.95, 0.1)}
"""Costs by the number of pieces; for two, other prices include those of results."""


class PieceCost(ScratchCost):
    """Prices schedules of one kernel.

    Constants of two pieces were fitted on an Intel Xeon (Sapphire Rapids) to 187 schedules of 17
    convolutions such as VGG's and ResNet's, within 12 % in the root mean square. That was before
    tiles were stored now and then, and weights lay in one stream; they were not fitted again. Those
    of three pieces were fitted there to 129 schedules of 26 convolutions and products (ResNet's,
    BERT's), within 9 %, to prices as high as those of vectors are above what these take.
    """

    def __init__(self, kernel: Kernel, machine: Machine, primitive: Primitive) -> None:
        super().__init__(kernel, machine)
        self.block_cycles = own_of(primitive).block_cycles
        self.source, weight = (
            next(o for o in kernel.anchor.inputs if o.role == role) for role in ("input", "weight")
        )
        self.pieces = pieces_of(weight.element)
        self.fitted = COSTS[self.pieces]

    def price(self, schedule: Schedule) -> tuple[float, float]:
        """Cycles, and bytes to and from main memory."""
        sizes = dict(schedule.levels[-1].tile)
        inside = [d for d in ("oh", "ow") if d in sizes] or ["m" if "m" in sizes else "n"]
        outer = prod(self.extents[d] for d in sizes if d not in (*inside, "co"))
        shapes: list[tuple[int, dict[str, int]]] = [(outer, {})]
        for dim in inside:
            cut = runs(self.extents[dim], sizes[dim])
            shapes = [(n * c, {**s, dim: size}) for n, s in shapes for c, size in cut]
        blocks = sum(count for count, _ in shapes)
        total = sum(count * self._block(block) for count, block in shapes)
        total += IMAGES * self.images * self._far(self.images) / self.second[1]
        between = self.weights + self.images / blocks
        again = self.weights * (blocks - 1) * missed(between, self.last[0])
        main = self.weights + again + self.images
        waiting = (self.weights + again + max(0.0, self.images - self.last[0])) / self.last[1]
        return max(total, waiting) + self.costs.fetched * min(total, waiting), main

    def _block(self, block: dict[str, int]) -> float:
        """Cycles of one block of points by all output channels."""
        geometry = Geometry.of(self.source.access, {**self.extents, **block}, self.pieces)
        vectors = ceil(self.extents["co"] / POINTS)
        tiles, pairs, parts = geometry.tiles, ceil(vectors / 2), ceil(geometry.tiles / 2)
        # Bytes of the reduction's tiles: of 16 points, or of a vector of output channels.
        depth = 4.0 * self.pieces * TILE_WORDS * geometry.steps
        products = tiles * vectors * geometry.steps * self.block_cycles
        points = 4.0 * geometry.point_words
        near = pairs * depth * (2 * parts + tiles / len(geometry.taps))
        stored = 4.0 * TWO * TILE_WORDS * geometry.steps
        beyond = pairs * points * self._far(points + 4 * depth)
        beyond += self.fitted.fetched * vectors * stored
        reading = near / self.near[1] + beyond / self.second[1]
        total = max(products, reading) + self.fitted.exposed * min(products, reading)
        total += self.fitted.weight * vectors * POINTS * geometry.steps
        total += self.fitted.result * vectors * geometry.points
        return total + self.fitted.split * geometry.point_words / (POINTS * self.pieces)

    def _far(self, size: float) -> float:
        """Part of a working set that the second cache does not keep."""
        return missed(size, USABLE * self.second[0])
