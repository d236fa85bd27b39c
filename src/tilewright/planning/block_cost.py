"""What blocks of tiles in scratch memory cost: three phases, none of which hides behind another.

Inputs are transformed, multiplied with the weights plane by plane, and transformed back. A plane's
products take what their multiply-adds take or what their weights take to arrive, which are asked
for while the plane before is multiplied: from the second cache, or from behind it if a block's
scratch and all weights do not fit there together. So do transformed inputs that the second cache
lost since the block of output channels before. The transforms hardly compute, so what they write
and read beyond the second cache is paid in full, as it goes both ways. Weights that are transformed
in registers are fetched ahead, and read again for every few planes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.planning.cached_blocks import register_tiles
from tilewright.planning.cached_cost import box_bytes, cache_levels
from tilewright.planning.domain import Kernel
from tilewright.planning.registers import Registers, registers_of
from tilewright.planning.schedule import Schedule

PLANE_CYCLES = 0.2
"""What a plane more in a register tile costs a step, whatever else bounds it (measured)."""


class BlockCost:
    """Prices schedules of one kernel on a primitive with scratch; keeps what they share.

    Exposed parts of transfers were fitted to measured times of the kernels that ``python -m
    benchmarks swatop`` lists as developed on.
    """

    def __init__(self, kernel: Kernel, machine: Machine, primitive: Primitive) -> None:
        extents = kernel.anchor.extents
        self.extents = extents
        self.costs = machine.cache_costs
        self.registers: Registers = registers_of(machine, primitive)
        cycles: Any = parse_expression(primitive.cycles).evaluate(extents)
        self.cycles = float(cycles)
        self.planes = extents.get("u", 1) * extents.get("v", 1)
        # Explicit convolutions lay out whole windows, and write results at once.
        self.explicit = "u" not in extents
        self.depth = extents["ci"] * (extents["kh"] * extents["kw"] if self.explicit else 1)
        self.grid = ("oh", "ow") if self.explicit else ("th", "tw")
        levels = cache_levels(machine)
        self.near, self.second = (levels * 2)[:2]
        # Bytes and bandwidth of what lies behind the last cache.
        self.last = levels[-1]
        self.weights = sum(box_bytes(o, extents) for o in kernel.operands if o.role == "weight")
        self.images = sum(box_bytes(o, extents) for o in kernel.operands if o.role in _IMAGES)
        self.results = box_bytes(kernel.output, extents)
        self._tiles: dict[tuple[int, ...], float] = {}

    def price(self, schedule: Schedule) -> tuple[float, float]:
        """Cycles, and bytes to and from main memory."""
        options = dict(schedule.options)
        most, planes = int(options["points"]), int(options.get("planes", 0))
        sizes = dict(schedule.levels[-1].tile)
        extents, total, blocks = self.extents, self.cycles, 0
        row, column = self.grid
        for rows, height in _runs(extents[row], sizes[row]):
            for columns, width in _runs(extents[column], sizes[column]):
                count = extents["n"] * rows * columns
                blocks += count
                block = self._block(height, width, sizes["co"], most, planes)
                total += count * extents.get("g", 1) * block
        if self.explicit:
            # Fetched and written while tiles compute, which hides neither (cached_cost.py).
            total += 2 * self.results * self._far(self.images) / self.second[1]
        # Between two uses of the weights lies what one block reads and writes, not all images.
        between = self.weights + self._scratch(sizes) + self.images / blocks
        again = self.weights * (blocks - 1) * _missed(between, self.last[0])
        main = self.weights + again + self.images
        # Weights come from memory at every run; activations were written just before.
        waiting = (self.weights + again + max(0.0, self.images - self.last[0])) / self.last[1]
        exposed = self.costs.fetched if planes else self.costs.streamed
        return max(total, waiting) + exposed * min(total, waiting), main

    def _block(self, height: int, width: int, channels: int, most: int, planes: int) -> float:
        """Cycles of one block beyond those of its products at full speed and its transforms.

        ``planes`` are those of one register tile that transforms weights; else 0.
        """
        key, tiles = (height, width, channels, most, planes), height * width
        if key not in self._tiles:
            parts = register_tiles(width, most) * height
            if not self.explicit:
                parts = register_tiles(tiles, most)
            inputs = 4 * self.planes * tiles * self.depth
            found = inputs * self._far(inputs) * self.costs.written / self.second[1]
            for count, part in _runs(self.extents["co"], channels):
                if planes:
                    found += count * self._transformed(tiles, parts, planes, inputs)
                else:
                    found += count * self._products(tiles, part, parts, inputs)
            self._tiles[key] = found
        return self._tiles[key]

    def _products(self, tiles: int, channels: int, parts: list[int], inputs: int) -> float:
        """The same of one block of output channels."""
        registers, depth, costs = self.registers, self.depth, self.costs
        vectors = ceil(channels / registers.lanes)
        outputs = 0 if self.explicit else 4 * self.planes * tiles * vectors * registers.lanes
        panel, pixels = 4 * vectors * registers.lanes * depth, 4 * tiles * depth
        (near, behind), (_, beyond) = self.near, self.second
        first = panel * self._far(self.weights + inputs + outputs)
        # From one block of output channels to the next all of the block's scratch is touched.
        far = self._far(inputs + outputs + self.planes * panel)
        stream = (first + pixels * far) / beyond
        work = 0.0
        for points in set(parts):
            each = depth * registers.step_cycles(points, vectors)
            work += parts.count(points) * (each + registers.call_cycles(points, vectors))
        lost = max(work, stream) + costs.refetched * min(work, stream)
        room = costs.block_usable * near
        again = (len(parts) - 1) * panel * _missed(panel + 4 * parts[0] * depth, room)
        read = panel - first + again
        lost += (costs.read_again * read + costs.pixels * pixels * (1.0 - far)) / behind
        lost -= tiles * vectors * depth / registers.vectors_per_cycle
        return self.planes * lost + outputs * far * costs.returned / beyond

    def _transformed(self, tiles: int, parts: list[int], planes: int, inputs: int) -> float:
        """The same of one vector of output channels whose weights are transformed in registers."""
        registers, depth, taps = self.registers, self.extents["ci"], self.extents["kh"]
        outputs = 4 * self.planes * tiles * registers.lanes
        panel = 4 * registers.lanes * depth * taps**2
        (_, behind), (_, beyond) = self.near, self.second
        far = self._far(inputs + outputs + 2 * panel)
        pixel = 4 * depth * ((1.0 - far) / behind + far / beyond)
        lost = -tiles * planes * depth / registers.vectors_per_cycle
        for points in parts:
            work = depth * transforming_step_cycles(points, planes, taps, registers)
            work += registers.call_cycles(points, planes)
            read, again = points * planes * pixel, panel / behind
            lost += max(work, again + read) + self.costs.plain_pixels * read
            lost += self.costs.fetched_again * min(work, again)
        written = outputs * self._far(inputs + outputs) * self.costs.written / beyond
        return self.planes / planes * lost + written

    def _scratch(self, sizes: Mapping[str, int]) -> float:
        """Bytes of a block's transformed inputs, and of the products of its output channels."""
        row, column = self.grid
        tiles = min(sizes[row], self.extents[row]) * min(sizes[column], self.extents[column])
        outputs = 0 if self.explicit else sizes["co"]
        return 4.0 * self.planes * tiles * (self.depth + outputs)

    def _far(self, size: float) -> float:
        """Part of a working set that the second cache does not keep."""
        return _missed(size, self.costs.block_usable * self.second[0])


_IMAGES = ("input", "residual", "output")


def transforming_step_cycles(points: int, planes: int, taps: int, registers: Registers) -> float:
    """Cycles of a step on some planes of a row, with weights that are transformed in registers.

    Every product has a broadcast of its own, which AVX-512 takes as an operand. Of the transform
    about half the operations are multiply-adds; the others add beside them (measured).
    """
    products = points * planes
    sums = taps * (taps - 1) / 2
    sums = 0.6 * planes + 0.8 * sums
    work = registers.step_cycles(products, 1) + sums / registers.vectors_per_cycle
    whole = 0.8 * taps**2
    loads = whole + products / 2 if registers.lanes >= 16 else (whole + products) / 2
    return max(work, loads, 4.0) + PLANE_CYCLES * planes


def _runs(extent: int, step: int) -> Iterator[tuple[int, int]]:
    """(count, size) of the parts of an extent that is cut by a step."""
    full, rest = divmod(extent, min(step, extent))
    yield full, min(step, extent)
    if rest:
        yield 1, rest


def _missed(size: float, room: float) -> float:
    """Part of what is used again and again that a cache of this room does not keep."""
    return max(0.0, 1.0 - room / size) if size > 0 else 0.0
