"""Reductions, from their tile programs: sums, products, largest and smallest elements.

A tile has rows whose elements along their axis are folded, or rows of an axis that are folded
element by element (elements.py). What the tiles so far give waits after all tiles, as floats: it is
set before the first tile of a reduction, and scaled, rounded and left to the store after the last.
"""

from __future__ import annotations

from functools import partial
from math import prod

from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import LANES, WIDTHS
from tilewright.targets.ascend.kernels.choices import Numbers
from tilewright.targets.ascend.kernels.folds import (
    FOLD_OF,
    FOLDS,
    FoldRoom,
    begin,
    finish,
    fold_room,
    take_in,
)
from tilewright.targets.ascend.kernels.vectors import ALL, Grid, Room, Vectors, number
from tilewright.targets.ascend.lowering.launches import Launches
from tilewright.targets.ascend.lowering.nest import Span, Spans, first_of, last_of, when
from tilewright.targets.ascend.lowering.normal import Floats
from tilewright.targets.ascend.lowering.tiled import Tiled, tiled_kernel
from tilewright.targets.ascend.lowering.walk import Homes
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Loop, Place, Statement
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp


class Folded(Floats):
    """The forms of a reduction, whose result is a fold times a factor; with ``skips`` what is no
    number takes no part."""

    def __init__(
        self,
        core: DaVinci,
        fold: str,
        factor: float,
        skips: bool,
        program: ProgramOp,
        compute: ComputeOp,
        homes: Homes,
    ) -> None:
        super().__init__(program, compute, core, homes, ("x",))
        self.fold, self.factor, self.skips = fold, factor, skips
        self.across = "l" in program.extents
        self.folds: FoldRoom | None = None
        self.line: Grid | None = None
        self.numbers: Numbers | None = None

    def is_single(self, op: BufferOp) -> bool:
        """No: results have as many dims as they need."""
        del op
        return False

    def pitch_of(self, op: BufferOp, columns: Span) -> int:
        """Whole blocks of halves, so that rows of 16 follow each other."""
        return padded(columns.most) * WIDTHS[self.element(op)]

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of a tile, with the floats of halves that are read."""
        written = op.result is self.values["out"]
        return Tiled.bytes(self, op, spans) if written else super().bytes(op, spans)

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """A tile of what is reduced."""
        x, out = self.homes[self.values["x"]], self.homes[op.output]
        rows, columns = self.tile_of(x.op, x.spans)
        if not self.work:
            self._place(rows.most, columns.most)
        dims = ("l", "c") if self.across else ("r", "axis")
        spans_of = zip((rows.size, columns.size), map(self.sizes, dims), strict=True)
        body = self.versions(list(spans_of), self._tile)
        start, end = Vectors(prefix="b"), Vectors(prefix="w")
        result = Grid(Place(out.buffer))
        if self.line is not None:
            start.fill(self.line, 1, columns.most, FOLDS[self.fold][1])
            self._scaled(end, result, self.line, columns.most)
        else:
            assert self.folds is not None
            begin(start, self.folds, self.fold, rows.most)
            found = finish(end, self.folds, self.fold, rows.most)
            self._scaled(end, result, found, rows.most)
        before = when("first", first_of(loops), start.body)
        return [*before, *body, *when("last", last_of(loops), end.body)]

    def _place(self, rows: int, columns: int) -> None:
        """Give what waits between tiles its place."""
        room = Room(self.core.ub, self.program.symbol.data, self.first_free())
        self.before.append(ALL)
        if self.across:
            size = padded(columns, LANES) * 4
            line = room.buffer("line", size)
            self.line, self.work = Grid(Place(line)), [line]
        else:
            self.folds = fold_room(room, rows)
            self.work = list(self.folds.buffers)
        if self.skips:
            self.numbers = Numbers(room)
            self.work += self.numbers.buffers
            self.before += self.numbers.before

    def _tile(self, sizes: tuple[int, ...]) -> list[Statement]:
        """Fold a tile of ``sizes``, rows and columns, into the folds of the tiles before."""
        (rows, columns), vectors = sizes, Vectors()
        plain, x = self.floats(self.homes[self.values["x"]])
        if self.numbers is not None:
            self.numbers.keep(vectors, plain, rows, columns)
        if x is not plain:
            vectors.operation("cast", x, (plain,), rows, columns)
        if self.line is not None:
            vectors.fold_rows(FOLDS[self.fold][0], self.line, x, rows, columns)
        else:
            assert self.folds is not None
            take_in(vectors, self.folds, self.fold, x, rows, columns)
        return vectors.body

    def _scaled(self, vectors: Vectors, out: Grid, found: Grid, count: int) -> None:
        """Write the results of ``count`` folds in their element type; overwrites ``found``."""
        to = out if out.element == "float" else found
        vectors.operation("vmuls", to, (found,), 1, count, number(self.factor))
        if to is not out:
            vectors.operation("cast", out, (found,), 1, count)


def folded(launches: Launches, program: ProgramOp) -> None:
    """The launch of a reduction: its tile program."""
    anchor = launches.kernel.anchor
    values = [launches.operand(anchor.inputs[0]), launches.result()]
    if {value.element for value in values} not in ({"half"}, {"float"}) or not (
        anchor.extents.keys() & {"r", "l"}
    ):
        raise launches.refusal(f"{anchor.operation} takes rows of floats or of halves alone")
    count = prod(anchor.extents[dim] for dim in anchor.reduction)
    factor = 1 / count if anchor.operation == "reduce_mean" else 1.0
    of = FOLD_OF[anchor.operation], factor, bool(anchor.attribute("skips"))
    name = launches.name(anchor.operation)
    make = partial(Folded, launches.core, *of)
    launches.launch(tiled_kernel(program, launches.core, name, make), *values)
