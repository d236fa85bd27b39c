"""Softmax and layer normalisation, from their tile programs.

A tile has whole rows, or whole columns where softmax is along another axis than the last. Halves
are converted to floats, which lie after them in each slot: planning counts 6 bytes an element.
What folds need is in the bytes of UB that the primitives keep free.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.folds import FoldRoom, fold_room
from tilewright.targets.ascend.kernels.normal import (
    Norm,
    normalise_rows,
    softmax_columns,
    softmax_rows,
)
from tilewright.targets.ascend.kernels.vectors import ALL, Grid, Room, Vectors, pitch_of
from tilewright.targets.ascend.lowering.launches import Launches
from tilewright.targets.ascend.lowering.nest import Spans
from tilewright.targets.ascend.lowering.tiled import Tiled, has_rows, tiled_kernel
from tilewright.targets.ascend.lowering.walk import Home, Homes
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Loop, Place, Statement
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp


class Floats(Tiled):
    """The forms of a compute of floats, which lie after the halves of a tile."""

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of a tile, with the floats of halves."""
        return super().bytes(op, spans) * (3 if WIDTHS[self.element(op)] == 2 else 1)

    def floats(self, home: Home) -> tuple[Grid, Grid]:
        """The places of a tile and of its floats."""
        rows, columns = self.tile_of(home.op, home.spans)
        pitch = self.pitch_of(home.op, columns)
        several = has_rows(home.op)
        plain = Grid(Place(home.buffer), pitch if several else 0)
        if plain.width == 4:
            return plain, plain
        place = Place(home.buffer, rows.most * pitch, "float")
        return plain, Grid(place, 2 * pitch if several else 0)


class Normal(Floats):
    """The forms of a softmax, or of a layer normalisation with these settings."""

    whole_tiles = True

    def __init__(
        self,
        core: DaVinci,
        norm: Norm | None,
        program: ProgramOp,
        compute: ComputeOp,
        homes: Homes,
    ) -> None:
        super().__init__(program, compute, core, homes, ("x", "scale", "shift"))
        self.norm = norm
        self.folds: FoldRoom | None = None
        self.line: Grid | None = None

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The operation on a tile."""
        rows, columns = self.tile_of(self.homes[op.output].op, spans)
        across = "l" in self.program.extents
        if not self.work:
            room = Room(self.core.ub, self.program.symbol.data, self.first_free())
            if across:
                size = pitch_of(columns.most, 4)
                line = room.buffer("line", 3 * size)
                self.line, self.work = Grid(Place(line)), [line]
            else:
                self.folds = fold_room(room, rows.most)
                self.work = list(self.folds.buffers)
            self.before.append(ALL)
        lines = {rows.most} if across else self.sizes("r")
        lengths = self.sizes("c") | self.sizes("w") if across else {columns.most}
        several = (rows.size, lines), (columns.size, lengths)
        return self.versions(several, lambda sizes: self._tile(*sizes))

    def _tile(self, rows: int, columns: int) -> list[Statement]:
        """The operation on ``rows`` rows of ``columns`` elements."""
        vectors = Vectors()
        floats = {name: self.floats(home) for name, home in self._homes.items()}
        for name, home in self._homes.items():
            if name != "out" and floats[name][0] is not floats[name][1]:
                count = rows if has_rows(home.op) else 1
                vectors.operation("cast", floats[name][1], (floats[name][0],), count, columns)
        x, out = floats["x"][1], floats["out"][1]
        if self.line is not None:
            softmax_columns(vectors, self.line, out, x, rows, columns)
        elif self.norm is None:
            assert self.folds is not None
            softmax_rows(vectors, self.folds, out, x, rows, columns)
        else:
            assert self.folds is not None
            scale, shift = (floats[n][1] if n in floats else None for n in ("scale", "shift"))
            ends = self.norm, scale, shift
            normalise_rows(vectors, self.folds, out, x, rows, columns, *ends)
        if floats["out"][0] is not out:
            vectors.operation("cast", floats["out"][0], (out,), rows, columns)
        return vectors.body

    @property
    def _homes(self) -> Mapping[str, Home]:
        return {name: self.homes[value] for name, value in self.values.items()}


def normal(launches: Launches, program: ProgramOp) -> None:
    """The launch of a softmax or layer normalisation: its tile program."""
    kernel, anchor = launches.kernel, launches.kernel.anchor
    values = [launches.operand(operand) for operand in kernel.inputs]
    values.append(launches.result())
    if {value.element for value in values} not in ({"half"}, {"float"}) or not (
        anchor.extents.keys() & {"r", "l"}
    ):
        raise launches.refusal(f"{anchor.operation} takes rows of floats or of halves alone")
    norm = None
    if anchor.operation == "layer_norm":
        norm = Norm(
            float(str(anchor.attribute("epsilon", 1e-5))), bool(anchor.attribute("centred", True))
        )
    name = launches.name(anchor.operation)
    core, ends = launches.core, (launches.ends, launches.longest)
    launches.launch(tiled_kernel(program, core, name, partial(Normal, core, norm), *ends), *values)
