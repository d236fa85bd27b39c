"""The cost of a separable convolution: its two parts, each with one end in scratch.

The windows of a block of points and their product with the channels' weights are two nests, one
after the other. Each is priced as the kernel that it would be alone, but for the image between
them, which is one block that is written and read again and again: small ones stay in a near cache,
large ones read the weights less often. So both ways to compute a pair are priced alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import primitives_for
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.planning.blocks import register_tiles
from tilewright.targets.cpu.planning.registers import REGISTERS

Price = Callable[[Kernel, Primitive, Schedule], tuple[float, float]]
"""Cycles, and bytes to and from main memory, of a kernel on a primitive."""

_BLOCK = "block"
"""Name of the image between both parts."""


class SeparableCost:
    """Prices schedules of one separable convolution; keeps what they share."""

    def __init__(self, kernel: Kernel, machine: Machine, price: Price) -> None:
        self.kernel, self.machine, self._price = kernel, machine, price
        self._windows: dict[tuple[int, int], tuple[float, float]] = {}

    def price(self, schedule: Schedule) -> tuple[float, float]:
        """Cycles, and bytes to and from main memory."""
        extents, options = self.kernel.anchor.extents, dict(schedule.options)
        level = schedule.levels[-1]
        block = level.size("oh", extents["oh"]), level.size("ow", extents["ow"])
        rows, columns = block
        outer = Level("l2", (("n", 1), ("oh", rows), ("ow", columns)), ("n", "oh", "ow"))

        def parts(dim: str, size: int, option: str) -> tuple[Level, Level]:
            points = register_tiles(columns, int(options[option]))[0]
            tile = ((dim, size), ("n", 1), ("oh", 1), ("ow", points))
            return outer, Level(REGISTERS, tile, (dim, "oh", "ow"))

        if block not in self._windows:
            kernel, primitive = self._part(block, self._depthwise)
            lanes = primitive.multiples["c"]
            nest = Schedule(primitive.name, parts("c", lanes, "columns"))
            self._windows[block] = self._price(kernel, primitive, nest)
        kernel, primitive = self._part(block, self._product)
        nest = Schedule(primitive.name, parts("co", level.size("co", extents["co"]), "points"))
        price = self._price(kernel, primitive, nest)
        return self._windows[block][0] + price[0], self._windows[block][1] + price[1]

    def _part(
        self, block: tuple[int, int], stages: Callable[[Operand], tuple[Stage, ...]]
    ) -> tuple[Kernel, Primitive]:
        """One of the two, with the layouts of the primitive that computes it alone."""
        anchor = self.kernel.anchor
        points = tuple(Affine(((dim, 1),)) for dim in ("oh", "ow"))
        shape = (1, anchor.extents["c"], *block)
        layout = anchor.inputs[0].layout
        between = Operand(_BLOCK, shape, (Affine(), Affine((("c", 1),)), *points), layout=layout)
        kernel = Kernel(self.kernel.symbol, stages(between))
        for primitive in primitives_for(kernel, self.machine):
            wanted = self.machine.layout_of(primitive, "input", len(shape))
            if wanted and Layout.parse(wanted, len(shape)) == Layout.parse(layout, len(shape)):
                return kernel, primitive
        raise refuse(
            "plan-primitive",
            f"no primitive of {self.machine.name} computes a part of {anchor.operation}",
            self.kernel.symbol,
        )

    def _depthwise(self, between: Operand) -> tuple[Stage, ...]:
        anchor = self.kernel.anchor
        x, window, _, _, bias, _ = anchor.inputs
        dims = tuple(dim for dim in anchor.dims if dim.name != "co")
        dims = tuple(Dim(d.name, d.extent) if d.name == "c" else d for d in dims)
        written = replace(between, role="output")
        return (Stage("depthwise_conv", dims, (x, window, bias), written),)

    def _product(self, between: Operand) -> tuple[Stage, ...]:
        anchor = self.kernel.anchor
        _, _, weights, _, _, bias = anchor.inputs
        dims = [dim for dim in anchor.dims if dim.name in ("n", "co", "oh", "ow")]
        dims.append(Dim("ci", anchor.extents["c"], "reduction"))

        def along(operand: Operand) -> Operand:
            axes = (tuple(("ci" if n == "c" else n, k) for n, k in a.terms) for a in operand.access)
            return replace(operand, access=tuple(Affine(terms) for terms in axes))

        inputs = (along(between), along(weights), bias)
        return (Stage("conv", tuple(dims), inputs, anchor.output), *self.kernel.stages[1:])
