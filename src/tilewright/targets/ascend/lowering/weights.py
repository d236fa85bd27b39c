"""Softmax of scores in UB, as they leave L0C: block columns of 16 floats a row.

What belongs to a row is a block of 8 floats alike; half a block column is every other block, so
that a repeat has eight rows. Columns that pad the last block become minus infinity. The results,
as halves, are blocks of the left operand of the next product.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.nest.value import Value, equal, least, select
from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.ir.types import layout_of
from tilewright.planning.layout import Layout
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.folds import FOLDS, LINES
from tilewright.targets.ascend.kernels.normal import reciprocal
from tilewright.targets.ascend.kernels.transposing import SCRATCH, gather_lanes, spread_lanes
from tilewright.targets.ascend.kernels.vectors import (
    CASTS,
    REPEAT,
    Grid,
    Room,
    Strides,
    Vectors,
    flat,
    number,
)
from tilewright.targets.ascend.lowering.epilogue import room_of
from tilewright.targets.ascend.lowering.matrices import Indices, Products, span
from tilewright.targets.ascend.lowering.nest import NOTHING, Span, Spans
from tilewright.targets.ascend.lowering.walk import Home, Homes, element_of, is_row
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_REPEAT, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.program import Loop, Place, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, WindowAttr

ROW = CUBE * 4
"""Bytes of a row of a block column of floats."""

FOUR_ROWS = REPEAT // ROW
"""Rows of a block column that are a repeat."""


@dataclass
class _Scores:
    """A matrix of scores in UB."""

    place: Place
    weights: Place
    """The place of the softmax's results, halves in as many blocks."""
    rows: Value
    most: int
    """The largest number of rows."""
    columns: Value
    """The number of its block columns."""
    widest: int

    def column(self, number: Value, half: int = 0) -> Place:
        """A block column, or its second half."""
        return self.place.at(number * self.rows * ROW + half * BLOCK)


class Weights(Products):
    """The forms of a softmax between two products."""

    def __init__(self, program: ProgramOp, compute: ComputeOp, core: DaVinci, homes: Homes) -> None:
        super().__init__(program, compute, core, homes)
        anchor = compute.stages[0]
        self.scale = float(dict(anchor.get("parameters", ())).get("scale", 1.0))
        *_, self.keys = (axis.terms[0][0] for axis in anchor.windows.data[-1].data if axis.terms)
        self.mask: SSAValue | None = anchor.inputs[1] if len(anchor.inputs) > 1 else None
        if self.mask is not None:
            self._check_mask()
        folds = dict.fromkeys(("turned", "scratch", "largest", "total"), SCRATCH)
        sizes = {"sums": LINES * ROW, **folds}
        if self.mask is not None:
            sizes["mask"] = LINES * ROW
        first, end = room_of(compute, program, core)
        room = Room(end, "folds of rows", first)
        buffers = {name: room.buffer(f"s_{name}", size) for name, size in sizes.items()}
        self.work += buffers.values()
        self.places = {name: Place(buffer) for name, buffer in buffers.items()}

    def _check_mask(self) -> None:
        """Refuse masks that do not have a half for each key, row by row."""
        (mask,) = (op for op, role in self.operands.values() if role == "bias")
        plain = Layout.parse(layout_of(mask.result), 4).row_major
        *_, columns = mask.result.type.get_shape()
        if element_of(mask) != "half" or not plain or columns != self.exact[self.keys]:
            reason = "attention takes a mask of halves in row-major order, one for each key"
            raise refuse("lower-operation", reason)

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of whole matrices; a mask lies row by row."""
        if not is_row(op.tensor_op):
            return super().bytes(op, spans)
        *batch, rows, columns = (self._span(op, spans, axis) for axis in range(4))
        count = batch[0].most * batch[1].most
        return count * rows.most * -(-columns.most // CUBE) * CUBE * 2

    def _span(self, op: BufferOp, spans: Spans, axis: int) -> Span:
        """The span of an axis of the mask."""
        assert isinstance(op.window, WindowAttr)
        terms = op.window.data[axis].terms
        return spans[terms[0][0]] if terms else NOTHING

    # The mask.

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """Load a tile's rows of the mask in whole blocks. Padding rows get a copy of the last
        row."""
        assert isinstance(outer, Tensor)
        op, shape = home.op, home.op.tensor_shape
        batch, heads, rows, columns = (self._span(op, home.spans, axis) for axis in range(4))
        loops = Loop("e0", batch.size), Loop("e1", heads.size), Loop("line", rows.size)
        image, head, line = (loop.variable for loop in loops)
        present = line + rows.start
        if shape[2] > 1 and shape[2] % CUBE:
            present = least(present, shape[2] - 1)
        number = (batch.start + image) * shape[1] + heads.start + head
        at = (number * shape[2] + present) * (shape[3] * 2)
        pitch = -(-columns.most // CUBE) * BLOCK
        inner = ((image * heads.size + head) * rows.size + line) * pitch
        copy = isa.copy(Place(home.buffer, inner), Place(outer, at), 1, pitch // BLOCK)
        for loop, body in zip(loops, (loops[1], loops[2], copy), strict=True):
            loop.body.append(body)
        return [loops[0]]

    def _masked(
        self, scores: _Scores, mask: Home, spans: Spans, indices: Indices
    ) -> list[Statement]:
        """Scores plus the mask."""
        op = mask.op
        batch, heads, rows, columns = (self._span(op, mask.spans, axis) for axis in range(4))
        dims = [axis.terms[0][0] if axis.terms else "" for axis in op.window.data]
        matrix: Value = 0
        for dim, size in zip(dims[:2], (batch, heads), strict=True):
            inner = spans[dim].start - size.start + indices.get(dim, 0) if dim else 0
            matrix = matrix * size.size + inner
        pitch = -(-columns.most // CUBE)
        line = spans[dims[2]].start - rows.start if dims[2] else 0
        home = Place(mask.buffer, (matrix * rows.size + line) * (pitch * BLOCK))
        wide, cast = self.places["mask"], CASTS["half", "float"]
        around = Loop("k", scores.columns)
        number = around.variable
        if not dims[2]:
            once = self._row(wide, home, pitch)
            for half in range(2):
                column = scores.column(number, half)
                row = wide.at(number * ROW + half * BLOCK)
                around.body += self._halves("vadd", column, row, scores, (0, 0))
            return [*once, around]
        part = home.at(number * BLOCK)
        if FOUR_ROWS * pitch <= MAX_REPEAT:
            strides: Strides = (1, pitch), (8, FOUR_ROWS * pitch)
            around.body += [isa.vector(cast, wide, (part,), scores.rows // FOUR_ROWS, *strides)]
        else:
            around.body += [
                isa.mask_of(isa.LANES, CUBE),
                isa.vector(cast, wide, (part,), scores.rows, (1, 1), (2, pitch), "", CUBE),
                isa.mask_of(isa.LANES, isa.LANES),
            ]
        column = scores.column(number)
        around.body.append(flat("vadd", column, (column, wide), scores.rows // FOUR_ROWS, 1, "p"))
        return [around]

    def _row(self, wide: Place, row: Place, blocks: int) -> list[Statement]:
        """A row of the mask as floats."""
        cast, (whole, rest) = CASTS["half", "float"], divmod(blocks, FOUR_ROWS)
        body: list[Statement] = []
        if whole:
            body.append(isa.vector(cast, wide, (row,), whole, (1, 1), (8, 4)))
        if rest:
            to, source = wide.at(whole * REPEAT), row.at(whole * FOUR_ROWS * BLOCK)
            body += [
                isa.mask_of(isa.LANES, rest * CUBE),
                isa.vector(cast, to, (source,), 1, (1, 1), (8, 4), "", rest * CUBE),
                isa.mask_of(isa.LANES, isa.LANES),
            ]
        return body

    # Softmax.

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The softmax of every matrix of the tile."""
        source, target = self.homes[op.stages[0].inputs[0]], self.homes[op.output]
        axes = self._axes(source.op)
        rows, keys = span(spans, axes.rows), span(spans, axes.columns)
        factor = number(self.scale)
        if rows.most > LINES:
            raise refuse("lower-operation", f"softmax takes {LINES} rows at once")

        def matrix(indices: Indices) -> list[Statement]:
            size = rows.size * keys.size
            number = self._matrix(axes, spans, indices, spans)
            scores = _Scores(
                Place(source.buffer, number * size * 4),
                Place(target.buffer, number * size * 2),
                *(rows.size, rows.most, keys.size // CUBE, keys.most // CUBE),
            )
            body: list[Statement] = []
            if self.scale != 1:
                body += self._all("vmuls", scores, scores.place, factor)
            if self.mask is not None:
                body += self._masked(scores, self.homes[self.mask], spans, indices)
            return [*body, *self._softmax(scores)]

        return [isa.mask_of(isa.LANES, isa.LANES), *self._matrices(axes, spans, matrix)]

    def _softmax(self, scores: _Scores) -> list[Statement]:
        turned, scratch, largest, total = (
            self.places[name] for name in ("turned", "scratch", "largest", "total")
        )
        vectors = Vectors()
        vectors.body += self._lowest(scores)
        highest = self._fold(vectors, scores, "max")
        spread_lanes(vectors, largest, highest.place, scratch)
        vectors.body += self._by_rows("vsub", scores, largest)
        vectors.body += self._all("vexp", scores, scores.place)
        sums = self._fold(vectors, scores, "add")
        reciprocal(vectors, sums, Grid(scratch), LINES)
        spread_lanes(vectors, total, turned, scratch)
        vectors.body += self._by_rows("vmul", scores, total)
        vectors.body += self._all(CASTS["float", "half"], scores, scores.weights)
        return vectors.body

    def _all(self, name: str, scores: _Scores, out: Place, scalar: str = "") -> list[Statement]:
        """out = name(x) of all scores."""
        repeats = scores.rows * scores.columns // FOUR_ROWS
        most = scores.most * scores.widest // FOUR_ROWS
        step = REPEAT_BLOCKS * isa.WIDTHS[isa.element_of(out)] // 4
        strides: Strides = (1, 1), (step, REPEAT_BLOCKS)
        return [
            flat(name, out, (scores.place,), repeats, most, "p", strides=strides, scalar=scalar)
        ]

    def _halves(
        self, name: str, column: Place, other: Place, scores: _Scores, steps: tuple[int, int]
    ) -> list[Statement]:
        """column = name(column, other) of half a block column, eight rows a repeat; ``steps`` are
        the blocks of the other from row to row, and from repeat to repeat."""
        strides: Strides = (2, 2, steps[0]), (16, 16, steps[1])
        return [isa.vector(name, column, (column, other), scores.rows // 8, *strides)]

    def _by_rows(self, name: str, scores: _Scores, other: Place) -> list[Statement]:
        """out = name(x, y) with one y for each row, in place."""
        around = Loop("k", scores.columns)
        for half in range(2):
            column = scores.column(around.variable, half)
            around.body += self._halves(name, column, other, scores, (1, 8))
        return [around]

    def _fold(self, vectors: Vectors, scores: _Scores, fold: str) -> Grid:
        """A float for each row."""
        name, nothing = FOLDS[fold]
        turned, scratch, sums = (self.places[n] for n in ("turned", "scratch", "sums"))
        vectors.fill(Grid(sums), 1, scores.most * CUBE, nothing)
        around = Loop("k", scores.columns)
        column = scores.column(around.variable)
        around.body.append(flat(name, sums, (sums, column), scores.rows // FOUR_ROWS, 1, "p"))
        vectors.body.append(around)
        vectors.body += self._halves(name, sums, sums.at(BLOCK), scores, (2, 16))
        gather_lanes(vectors, turned, sums, scratch, ROW, scores.most)
        first = Grid(turned)
        for lines in (4, 2, 1):
            vectors.operation(name, first, (first, first.at(lines * LINES * 4)), 1, lines * LINES)
        return first

    def _lowest(self, scores: _Scores) -> list[Statement]:
        """Minus infinity in the padding columns of the last block."""
        present, last = self.exact[self.keys], scores.column(scores.columns - 1)
        lowest = f"(float){FOLDS['max'][1]}"
        if isinstance(present, int):
            if not present % CUBE:
                return []
            lines = range(FOUR_ROWS)
            bits = sum(1 << CUBE * line + n for line in lines for n in range(present % CUBE, CUBE))
            return [
                isa.mask("0x0ULL", f"{bits:#x}ULL"),
                flat("vector_dup", last, (), scores.rows // FOUR_ROWS, 1, "p", scalar=lowest),
                isa.mask_of(isa.LANES, isa.LANES),
            ]
        rest = present % CUBE
        loop = Loop("rest", select(equal(rest, 0), 0, 1))
        strides: Strides = (1,), (4,)
        loop.body += [
            isa.mask_from(rest),
            isa.vector("vector_dup", last, (), scores.rows // 2, *strides, lowest, 2 * CUBE),
            isa.mask_of(isa.LANES, isa.LANES),
        ]
        return [loop]
