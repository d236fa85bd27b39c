"""Means of whole images: a vector of ones times the image, which is a matrix of pixels by channels.

``VMM`` adds up as many rows of a matrix as the vector has elements, lanes of them at once, with 32
bits. A channels-last image in the matrix scratchpad is such a matrix, and comes in one transfer::

    7 x 7 pixels of 2048 channels:  1 VMM of 128 cycles, and a division of 64

Blocks of channels that lie apart are a matrix each; several of them come in one transfer, too.
"""

from __future__ import annotations

from math import prod

from tilewright.errors import refuse
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.pooling import check_area
from tilewright.targets.cambricon.lowering.temporaries import clear, fill


class MatrixMean(Code):
    """The code of a mean over one window, whose image lies in the matrix scratchpad."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.x, access = c.source(c.anchor, 0)
        if [stage.operation.data for stage in c.compute.stages[1:]] not in ([], ["relu"]):
            raise refuse("lower-epilogue", "only ReLU may follow pooling", c.where)
        if "c" not in access[self.x.order[-1]].dims:
            raise refuse("lower-layout", "channels do not lie side by side", c.where)
        if (
            c.nest.extent("oh") * c.nest.extent("ow") * c.nest.tile_size("n") > 1
            or "c" in c.nest.looped
        ):
            raise refuse("lower-window", "means of several windows in one matrix", c.where)
        self.channels, self.count = c.nest.extent("c"), 1
        self.blocks = next((a for a, affine in enumerate(access) if "g" in affine.dims), None)
        """The image's axis of blocks of channels, if it has one."""
        self.met = [1, 1]
        """Rows and columns of the window that meet the image."""
        self.axis: int | None = None
        """The image's axis of rows."""
        padding = c.anchor.parameters.get("counted", (0, 0, 0, 0))
        for number, dim in enumerate(("kh", "kw")):
            axis = next((a for a, affine in enumerate(access) if dim in affine.dims), None)
            if axis is None:
                continue
            extent = self.x.buffer.tensor_shape[axis]
            first, size = access[axis].interval({dim: (0, c.nest.extent(dim))})
            if size != c.nest.extent(dim):
                raise refuse("lower-window", "the mean of a window with dilation", c.where)
            self.axis = self.axis if number else axis
            self.met[number] = min(first + size, extent) - max(first, 0)
            end = min(first + size, extent + padding[number + 2])
            self.count *= end - max(first, -padding[number])
        check_area(self.count, c.where)
        self.relu = epilogue_of(c.compute.stages, c.where).relu
        t = c.temporaries
        self.ones, self.sums = t.take(2 * prod(self.met)), t.take(4 * self.channels)
        self.areas = t.take(2 * self.channels)
        self.zeros = t.take(2 * self.channels) if self.relu else 0

    def prologue(self) -> None:
        """Emit the code that runs before all tiles."""
        fill(self.e, self.ones, prod(self.met), 1)
        fill(self.e, self.areas, self.channels, self.count)
        if self.relu:
            clear(self.e, self.zeros, self.channels)

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        to, image = (
            e.variable(c.nest.base(c.output, tile)),
            e.variable(c.nest.base(self.x, tile)),
        )
        n, sums, ones = (e.reg(number) for number in (self.channels, self.sums, self.ones))
        rows, width = self.met
        strides = c.nest.box(self.x, tile).strides
        step = 0 if self.axis is None else strides[self.axis]
        if rows == 1 or step == 2 * width * self.channels:
            rows, width = 1, rows * width
        size = e.reg(width)

        def block() -> None:
            at = e.variable(image) if rows > 1 else image
            e.emit("VMM.wide", sums, n, at, ones, size)
            for _ in range(rows - 1):
                # The image has more columns than the window.
                e.increase(at, step)
                e.emit("VMM.acc.wide", sums, n, at, ones, size)
            e.emit("VDV.wide0", to, n, sums, e.reg(self.areas))
            if self.relu:
                e.emit("VGTM", to, n, to, e.reg(self.zeros))
            e.increase(image, 0 if self.blocks is None else strides[self.blocks])
            e.increase(to, self.channels * c.output.element)

        e.repeat(tile.spans.of("g"), block, least=1)
