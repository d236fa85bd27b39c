"""The cost of blocks of tiles in scratch memory: three phases that do not overlap.

Inputs are transformed, multiplied with the weights plane by plane, and transformed back. A plane's
products take little longer than their multiply-adds or than their weights take to arrive, which are
asked for while the plane before is multiplied: from the second cache, or from beyond it if a
block's scratch and all weights do not fit there together. So do transformed inputs that the second
cache lost since the block of output channels before, but they are not prefetched. The transforms
hardly compute, so what they read and write beyond the second cache is paid in full: windows of the
image, and scratch, which goes both ways. Weights that are transformed
as products need them are read once for every row of planes, and written into panels that the second
cache keeps; products go on meanwhile, and later from sums that they have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.planning.blocks import panel_channels, register_tiles
from tilewright.targets.cpu.planning.cost import ScratchCost, missed, runs
from tilewright.targets.cpu.planning.registers import Registers, registers_of


class BlockCost(ScratchCost):
    """Prices schedules of one kernel on a primitive with scratch; keeps what they share.

    Exposed parts of transfers were fitted to measured times of ten of the convolutions that
    ``python -m benchmarks swatop`` lists as developed on (docs/papers/swatop.md); those of weights
    transformed on the way to 13 layers such as VGG's and ResNet's, in both tiles, and of weights
    from memory to three of these, each run with weights that no cache holds.
    """

    def __init__(self, kernel: Kernel, machine: Machine, primitive: Primitive) -> None:
        super().__init__(kernel, machine)
        extents = self.extents
        self.registers: Registers = registers_of(machine, primitive)
        cycles: Any = parse_expression(primitive.cycles).evaluate(extents)
        self.cycles = float(cycles)
        self.planes = extents["u"] * extents["v"]
        # Of windows whose weights are yet to be transformed; else 0.
        self.taps = extents.get("kh", 0)
        self.depth = extents["ci"]
        self._tiles: dict[tuple[int, ...], float] = {}

    def price(self, schedule: Schedule) -> tuple[float, float]:
        """Cycles, and bytes to and from main memory."""
        options = dict(schedule.options)
        most = int(options["points"])
        sizes = dict(schedule.levels[-1].tile)
        extents, total, blocks = self.extents, self.cycles, 0
        for rows, height in runs(extents["th"], sizes["th"]):
            for columns, width in runs(extents["tw"], sizes["tw"]):
                count = extents["n"] * rows * columns
                blocks += count
                block = self._block(height, width, sizes["co"], most)
                block += self._read(height, width)
                total += count * extents.get("g", 1) * block
        # Between two uses of the weights lies what one block reads and writes, not all images.
        between = self.weights + self._scratch(sizes) + self.images / blocks
        again = self.weights * (blocks - 1) * missed(between, self.last[0])
        main = self.weights + again + self.images
        # Weights come from memory at every run, beside the first block; activations were written
        # just before, and what of them and of weights is read again is spread over the others.
        fresh, spread = max(0.0, self.weights - self.kept), max(0.0, self.images - self.last[0])
        exposed, begin = self.costs.fetched if self.taps else self.costs.streamed, total / blocks
        total = 0.0
        for work, moved in ((begin, fresh), (begin * (blocks - 1), again + spread)):
            waiting = moved / self.last[1]
            total += max(work, waiting) + exposed * min(work, waiting)
        return total, main

    def _read(self, height: int, width: int) -> float:
        """Cycles of reading a block's windows of the image from beyond the second cache."""
        elements, far = self.extents["ci"], self._far(self.images)
        for tiles in (height, width):
            elements *= tiles * self.extents["r"] + self.extents["u"] - self.extents["r"]
        return 4 * elements * far / self.second[1]

    def _block(self, height: int, width: int, channels: int, most: int) -> float:
        """Cycles of one block beyond those of its products at full speed and its transforms."""
        key, tiles = (height, width, channels, most), height * width
        if key not in self._tiles:
            parts = register_tiles(tiles, most)
            inputs = 4 * self.planes * tiles * self.depth
            total = inputs * self._far(inputs) * self.costs.written / self.second[1]
            for count, part in runs(self.extents["co"], channels):
                price = self._transformed if self.taps else self._products
                total += count * price(tiles, part, parts, inputs)
            self._tiles[key] = total
        return self._tiles[key]

    def _products(self, tiles: int, channels: int, parts: list[int], inputs: int) -> float:
        """Cycles of one block of output channels."""
        registers, depth, costs = self.registers, self.depth, self.costs
        vectors = ceil(channels / registers.lanes)
        outputs = 4 * self.planes * tiles * vectors * registers.lanes
        panel, pixels = 4 * vectors * registers.lanes * depth, 4 * tiles * depth
        (near, farther), (_, beyond) = self.near, self.second
        first = panel * self._far(self.weights + inputs + outputs)
        # From one block of output channels to the next all of the block's scratch is touched.
        far = self._far(inputs + outputs + self.planes * panel)
        work, lines = 0.0, pixels * far / beyond
        for points in set(parts):
            each = depth * registers.step_cycles(points, vectors)
            work += parts.count(points) * (each + registers.call_cycles(points, vectors))
        lost = _beside(work, first / beyond + lines) + costs.refetched * lines
        room = costs.block_usable * near
        again = (len(parts) - 1) * panel * missed(panel + 4 * parts[0] * depth, room)
        read = panel - first + again
        lost += (costs.read_again * read + costs.pixels * pixels * (1.0 - far)) / farther
        lost -= tiles * vectors * depth / registers.vectors_per_cycle
        return self.planes * lost + outputs * far * costs.returned / beyond

    def _transformed(self, tiles: int, channels: int, parts: list[int], inputs: int) -> float:
        """Cycles of one block where weights are transformed beside the products, a panel at a
        time."""
        registers, depth, costs = self.registers, self.depth, self.costs
        vectors, rows = ceil(channels / registers.lanes), self.extents["u"]
        (_, farther), (_, beyond) = self.near, self.second
        weight = 4 * vectors * registers.lanes * depth
        outputs, pixels = 4 * self.planes * tiles * vectors * registers.lanes, 4 * tiles * depth
        panels = 2 * rows * weight * panel_channels(depth, tiles) // depth
        far = self._far(inputs + outputs + panels + self.taps**2 * weight)
        turns = ceil(depth / panel_channels(depth, tiles))
        work = 0.0
        for points in set(parts):
            each = depth * registers.step_cycles(points, vectors)
            work += parts.count(points) * (each + turns * registers.call_cycles(points, vectors))
        # Of every panel but the last, sums are written and read again.
        work += (turns - 1) * costs.summed * (outputs / self.planes) / farther
        stream = pixels * far / beyond
        read = pixels * (1.0 - far) * costs.pixels + (len(parts) - 1) * weight * costs.read_again
        lost = _beside(work, stream) + costs.refetched * stream + read / farther
        # What the first cache keeps of both panels, and of the weights that they are made of.
        block = panels + self.taps**2 * weight * panel_channels(depth, tiles) // depth
        written = (self.planes * costs.rewritten + rows * self.taps**2) * weight / farther
        written *= missed(block, costs.panels * self.near[0])
        lost = self.planes * lost
        products = self.planes * tiles * vectors * depth / registers.vectors_per_cycle
        lost = max(lost + costs.beside * written, written + costs.beside * products) - products
        return lost + outputs * self._far(inputs + outputs) * costs.returned / beyond

    def _scratch(self, sizes: Mapping[str, int]) -> float:
        """Bytes of a block's transformed inputs, and of the products of its output channels."""
        tiles = min(sizes["th"], self.extents["th"]) * min(sizes["tw"], self.extents["tw"])
        return 4.0 * self.planes * tiles * (self.depth + sizes["co"])

    def _far(self, size: float) -> float:
        """Part of a working set that the second cache does not keep."""
        return missed(size, self.costs.block_usable * self.second[0])


_OVERLAP = 3.0
"""The exponent p of the p-norm that two times have that overlap."""


def _beside(work: float, stream: float) -> float:
    """Cycles of products and of what streams in beside them, asked for ahead.

    Of a thin stream almost all hides; the denser its requests, the more wait for one another. One
    that takes as long as the products makes them a quarter longer (measured).
    """
    return (work**_OVERLAP + stream**_OVERLAP) ** (1.0 / _OVERLAP)
