"""Matrix products as sums of outer products, made where the matrix unit writes matrices.

``OP`` multiplies every element of one vector with every element of another. A product whose first
operand lies in main memory with its rows side by side (transposed), or whose reduction has few
steps, is a sum of such matrices: each step of the reduction adds one. A gradient of a fully
connected layer's weights is of this kind, one step for each image of the batch.

Tiles of the result lie in the matrix scratchpad and are stored from there. Sums of several steps
have 32 bits; the last step narrows them in place.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.operands import Operand


class Outer(Code):
    """The code of one sum of outer products."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.x, _ = c.source(c.anchor, 0)
        self.w, _ = c.source(c.anchor, 1)
        self.rows = "m" if "m" in c.nest.extents else "n"
        if len(c.anchor.inputs) == 3:
            raise refuse("lower-bias", "outer products take no bias", c.where)
        self.epilogue = epilogue_of(c.compute.stages, c.where)
        if [stage.operation.data for stage in c.compute.stages[1:]] not in ([], ["requantise"]):
            raise refuse("lower-epilogue", "an outer product takes no map after it", c.where)
        for operand, dim in ((self.x, self.rows), (self.w, "co")):
            self._check_layout(operand, dim)
        self.stays_whole(c.output)
        self.sums = c.output.buffer.accumulates is not None
        if c.nest.extent("ci") > 1 and not self.sums:
            raise refuse("lower-nest", "sums of outer products have 32 bits", c.where)

    def _check_layout(self, operand: Operand, dim: str) -> None:
        """Elements along a dim lie side by side, if there are several."""
        axes = [a for a in operand.order if operand.buffer.tensor_shape[a] > 1]
        last = operand.buffer.window.data[axes[-1]].dims if axes else frozenset[str]()
        if self.c.nest.tile_size(dim) > 1 and dim not in last:
            raise refuse("lower-layout", f"{dim} of {operand.name} is not innermost", self.c.where)

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        rows, columns = tile.spans.of(self.rows), tile.spans.of("co")
        shift = self.epilogue.shift or 0
        end = ".wide" if self.epilogue.wide_result else ""
        out = e.reg(tile.bases[c.output.buffer])
        n, m = e.reg(rows), e.reg(columns)
        if not self.sums:
            x, w = (e.reg(c.nest.base(operand, tile)) for operand in (self.x, self.w))
            e.emit(f"OP{end}" + (f".shift={shift}" if shift else ""), out, x, n, w, m)
            return
        before, after = c.nest.reduced(tile)
        self._steps(tile, out, (n, m), before)
        if self.epilogue.wide_result and not shift:
            return
        partial = e.label("partial")
        e.if_positive(after, partial)
        total = e.reg(e.multiply(rows, columns))
        e.emit(f"MMOVE{end}.wide0" + (f".shift={shift}" if shift else ""), out, total, out)
        e.place(partial)

    def _steps(
        self, tile: Tile, out: Register, sizes: tuple[Register, Register], before: Value
    ) -> None:
        """Add the matrices of a tile's steps; the first of all begins the sums."""
        e, c = self.e, self.c
        n, m = sizes
        x, w = (e.variable(c.nest.base(operand, tile)) for operand in (self.x, self.w))
        steps = [c.nest.stride(operand, tile, "ci") for operand in (self.x, self.w)]
        left = e.variable(tile.spans.of("ci"))
        further, done = e.label("further"), e.label("added")
        e.if_positive(before, further)
        e.emit("OP.wide", out, x, n, w, m)
        e.jump(done)
        e.place(further)
        e.emit("OP.acc.wide", out, x, n, w, m)
        e.place(done)
        e.increase(x, steps[0])
        e.increase(w, steps[1])
        e.emit("SSUB", left, left, 1)
        e.emit("CB", left, further)
