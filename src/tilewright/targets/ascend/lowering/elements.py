"""Elementwise computes of tile programs: tiles in UB, and the recipes' instructions on them.

A tile is rows and columns (elements.py says which dims are these). Tiles of elements as they lie
are computed in whole repeats, so many as the tile has; others by rows, of which the last columns
come under a mask. Halves are computed on as floats where a function needs it, or a single number
or a column is spread over blocks. Temporaries, and blocks of elements alike, lie in the bytes of UB
that the primitive keeps free behind all tiles: a tile is computed in portions for which these have
room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tilewright.codegen.nest.value import Value, equal, select
from tilewright.errors import refuse
from tilewright.ir.types import layout_of
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.recipes import Recipe, Step, compute
from tilewright.targets.ascend.kernels.transfers import SLACK, move
from tilewright.targets.ascend.kernels.transposing import LINES, SCRATCH, spread_lanes
from tilewright.targets.ascend.kernels.vectors import (
    ALL,
    BOOLEAN,
    CHOICE_BITS,
    REPEAT,
    Choice,
    Grid,
    Vectors,
    pieces,
)
from tilewright.targets.ascend.lowering.nest import NOTHING, Span, Spans
from tilewright.targets.ascend.lowering.walk import PARAMETERS, Forms, Home, Homes, element_of
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_REPEAT, DaVinci
from tilewright.targets.ascend.program import Buffer, Loop, Place, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, TensorOp, enclosing_loops

WIDEST = 1024
"""Columns of a portion at most, where it needs temporaries."""


@dataclass(frozen=True)
class Function:
    """What one stage computes: a recipe, its scalars as C, and which operands are single numbers
    that are known, of which main memory has blocks."""

    recipe: Recipe
    scalars: tuple[str, ...]
    names: tuple[str, ...] = ("x", "y")
    """The recipe's names of the operands, in their order."""
    numbers: frozenset[str] = frozenset()


class Elements(Forms):
    """The forms of a compute whose stages are ``functions``, the first of several operands."""

    def __init__(
        self,
        program: ProgramOp,
        compute: ComputeOp,
        core: DaVinci,
        homes: Homes,
        functions: Sequence[Function],
    ) -> None:
        super().__init__(program, compute, core, homes)
        self.functions, self.of = functions, compute
        self.flat = "e" in program.extents
        self.kinds: dict[str, str] = {}
        """Element types of the buffers that are no operands."""
        self.alike: dict[str, str] = {}
        """Blocks of elements alike, and these, as C."""
        anchor = functions[0]
        pairs = zip(anchor.names, compute.stages[0].inputs, strict=False)
        self.values = {**dict(pairs), "out": compute.output}
        self.spread: list[str] = []
        """Operands of which each row has one element, spread over blocks."""
        self.room: dict[str, Buffer] = {}
        """Buffers behind the tiles."""
        extents = program.extents
        for name in anchor.names:
            shape = _op(self.values[name]).tensor_shape if name in self.values else ()
            columns = extents.get("c", extents.get("w", 0)) or extents.get("e", 1)
            single = name in self.values and (not shape or shape[-1] < columns)
            if single and name not in anchor.numbers:
                self.spread.append(name)
        self.steps = [step for number in range(len(functions)) for step in self._steps(number)]
        self.chooses = any(step.chooses for step in self.steps)
        order = [loop.dim.data for loop in enclosing_loops(compute)]
        if "w" in extents and order != sorted(order, key=list(extents).index):
            reason = "rows of no whole blocks are stored one after the other"
            raise self.refusal(reason)
        if self.chooses and self.spread:
            raise self.refusal("a choice would broadcast a column of halves")

    def _steps(self, number: int) -> list[Step]:
        """The steps of a stage on buffers of these names."""
        function, first = self.functions[number], number == 0
        recipe, prefix = function.recipe, "" if first else f"s{number}_"
        read = {name: name if first else "out" for name in function.names[: recipe.operands]}
        element = element_of(_op(self.values["out"]).tensor_op)
        if first:
            others = [name for name in read if name != "c" and name in self.values]
            element = element_of(_op(self.values[others[0]]).tensor_op)
        wide = element == "half" and (recipe.wide or (first and bool(self.spread)))
        inner = "float" if wide else element
        alike = {**recipe.constants, **dict(zip(recipe.scalars, function.scalars, strict=True))}
        names = {name: prefix + name for name in (*alike, *recipe.temporaries)}
        self.alike |= {names[name]: value for name, value in alike.items()}
        for name in (*alike, *recipe.temporaries):
            self.kinds[names[name]] = recipe.kinds.get(name, inner)
        before: list[Step] = []
        for name, source in read.items():
            spread = first and name in self.spread
            names[name] = f"{prefix}{source}_floats" if wide or spread else source
            if spread or (wide and first and name in function.numbers):
                self.kinds[names[name]] = "float"
            elif wide:
                self.kinds[names[name]] = "float"
                before.append(Step("cast", names[name], (source,)))
        after: list[Step] = []
        names["out"] = "out"
        if wide:
            names["out"] = f"{prefix}out_floats"
            self.kinds[names["out"]] = "float"
            after.append(Step("cast", "out", (names["out"],)))
        return [*before, *(step.renamed(names) for step in recipe.steps), *after]

    def extents(self) -> dict[str, int]:
        """The extents of the program."""
        return dict(self.program.extents)

    def block_of(self, dim: str) -> int:
        """One: tiles begin at any index."""
        del dim
        return 1

    def column(self, home: Home) -> Span:
        """The columns of a tile."""
        return self._tile(home.op, home.spans)[1]

    def element(self, op: BufferOp) -> str:
        """The element type of its tensor."""
        return element_of(op.tensor_op)

    def parameter(self, op: TensorOp) -> tuple[str, str]:
        """The recipe's name of an operand, and its element type."""
        names = (name for name, value in self.values.items() if _op(value).tensor_op is op)
        return next(names, PARAMETERS[op.role.data]), element_of(op)

    def main_bytes(self, op: TensorOp) -> int:
        """Bytes in main memory, with those behind it that copies may touch."""
        shape = op.result.type.get_shape()
        size = prod(shape)
        if layout_of(op.result):
            size = prod(shape[:-2]) * padded(shape[-2]) * padded(shape[-1])
        return size * WIDTHS[element_of(op)] + SLACK

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of a tile, with what whole repeats need."""
        (rows, columns), width = self._tile(op, spans), WIDTHS[self.element(op)]
        if not op.tensor_shape or op.tensor_shape[-1] == 1:
            return padded(columns.most * width, BLOCK)
        size = rows.most * self._pitch(op, columns)
        return padded(size, isa.LANES * width) if self.flat else size

    def load(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A tile from main memory."""
        return self._moved(home, outer, loads=True)

    def store(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        """A tile to main memory."""
        return self._moved(home, outer, loads=False)

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The stages on a tile."""
        out = self.homes[op.output].op
        rows, columns = self._tile(out, spans)
        if not self.room:
            self._place()
        body: list[Statement] = []
        if self.flat:
            row = self._pitch(out, columns) // WIDTHS[self.element(out)]
            sizes = {size * row for size in self._sizes("o")}
            size, most = rows.size * row, rows.most * row
            if rows.most == 1:
                sizes, size, most = self._sizes("e"), columns.size, columns.most
            if not self.chooses:
                return [*self._spread(1), ALL, *self._flat(size, most, sizes)]
            rows, columns = NOTHING, Span(0, size, most)
            lines, lengths = {1}, sizes
        else:
            lines, lengths = (
                set.union(*map(self._sizes, names)) for names in (("r", "l"), ("c", "w"))
            )
        for line, length in product(sorted(lines), sorted(lengths)):
            guards = ((rows.size, line, lines), (columns.size, length, lengths))
            part: list[Statement] = [*self._spread(line), ALL, *self._by_rows(line, length)]
            for size, one, several in guards:
                if len(several) > 1:
                    part = [Loop(f"of_{one}", select(equal(size, one), 1, 0), part)]
            body += part
        return body

    def _sizes(self, dim: str) -> set[int]:
        """The sizes that tiles have along a dim; none where there is no such dim."""
        sizes = {self.program.extents[dim]} if dim in self.program.extents else set[int]()
        for loop in enclosing_loops(self.of):
            if loop.dim.data == dim:
                step = loop.step_size
                whole = {step for size in sizes if size >= step}
                sizes = whole | {size % step for size in sizes if size % step}
        return sizes

    def _is_single(self, name: str) -> bool:
        return name in self.spread or name in self.functions[0].numbers

    def _tile(self, op: BufferOp, spans: Spans) -> tuple[Span, Span]:
        """The rows and the columns that a buffer holds; of one element a row the rows are its
        columns."""
        axes = [spans[axis.dims[0]] if axis.dims else NOTHING for axis in op.window.data]
        rows, columns = [NOTHING, NOTHING, *axes][-2:]
        if op.tensor_shape and op.tensor_shape[-1] == 1:
            return NOTHING, rows
        return rows, columns

    def _pitch(self, op: BufferOp, columns: Span) -> int:
        """Bytes from row to row of a buffer."""
        width, shape = WIDTHS[self.element(op)], op.tensor_shape
        if self.flat and shape and columns.most == shape[-1]:
            return columns.most * width
        return -(-columns.most // BLOCK) * BLOCK * width

    def _moved(self, home: Home, outer: Home | Tensor, *, loads: bool) -> list[Statement]:
        """A tile from main memory, or back: bursts of whole blocks, or copies of rows."""
        assert isinstance(outer, Tensor)
        op, local = home.op, Place(home.buffer)
        rows, columns = self._tile(op, home.spans)
        width, shape = WIDTHS[self.element(op)], op.tensor_shape
        starts = [home.spans[axis.dims[0]].start if axis.dims else 0 for axis in op.window.data]
        pitch, blocks = self._pitch(op, columns), bool(layout_of(op.tensor_op.result))
        inner = list(map(padded, shape[-2:])) if blocks else shape[-2:]
        start: Value = 0
        step = width
        for at, size in zip(reversed(starts), reversed((*shape[:-2], *inner)), strict=True):
            start = start + (0 if blocks and step < prod(inner) * width else at * step)
            step *= size
        if blocks:
            loop = Loop(f"block_{home.buffer.name}", (columns.size + (CUBE - 1)) // CUBE)
            block = columns.start // CUBE + loop.variable
            main = Place(outer, start + block * (inner[0] * BLOCK) + rows.start * BLOCK)
            part, gaps = local.at(loop.variable * BLOCK), (0, pitch // BLOCK - 1)
            loop.body.append(move(part, main, rows.size, 1, gaps, loads))
            return [loop]
        main, apart = Place(outer, start), (shape[-1] if shape else 1) * width
        length: Value = (columns.size * width + (BLOCK - 1)) // BLOCK
        if rows.most == 1:
            return [move(local, main, 1, length, (0, 0), loads)]
        if apart == pitch:
            return [move(local, main, 1, rows.size * (apart // BLOCK), (0, 0), loads)]
        if apart % BLOCK == 0:
            gaps = apart // BLOCK - length, pitch // BLOCK - length
            return [move(local, main, rows.size, length, gaps, loads)]
        loop = Loop(f"row_{home.buffer.name}", rows.size)
        ends = local.at(loop.variable * pitch), main.at(loop.variable * apart)
        loop.body.append(move(*ends, 1, length, (0, 0), loads))
        return [loop]

    def _place(self) -> None:
        """Give what is no tile its place behind the tiles, and fill blocks of elements alike."""
        used = [b for b in self.program.walk() if isinstance(b, BufferOp) and b.memory == "ub"]
        first = max(b.get("address") + b.get("bytes") * b.places for b in used)
        fills = Vectors(prefix="k")

        def take(name: str, size: int, element: str, value: str = "") -> Grid:
            nonlocal first
            if first + size > self.core.ub:
                left = self.core.ub - first
                raise refuse("plan-capacity", f"{left} bytes of ub hold no {name} of {size}")
            self.room[name] = Buffer(name, "ub", first, size, element=element)
            first += -(-size // BLOCK) * BLOCK
            grid = Grid(Place(self.room[name]))
            if value:
                fills.fill(grid, 1, size // WIDTHS[element], value)
            return grid

        for name, value in self.alike.items():
            take(name, BLOCK, self.kinds[name], value)
        for name in self.spread:
            take(f"{name}_floats", SCRATCH, "float")
            take(f"{name}_packed", LINES * 4, "float")
        if self.spread:
            take("scratch", SCRATCH, "float")
        for name in self.functions[0].numbers:
            if f"{name}_floats" in self.kinds:
                take(f"{name}_floats", BLOCK, "float")
        if self.chooses:
            take("end0", REPEAT, "half", "0.0f")
            take("end1", REPEAT, "half", "0.0f")
            take("bits", CHOICE_BITS, BOOLEAN)
        self.temporaries = [name for name in self.kinds if name not in self.room]
        each = sum(WIDTHS[self.kinds[name]] for name in self.temporaries)
        self.portion = 0
        """The number of elements of temporaries; 0 where there are none."""
        if each:
            self.portion = (self.core.ub - first) // (each * isa.LANES) * isa.LANES
            self.portion = min(self.portion, MAX_REPEAT * isa.LANES // 2)
            if self.portion < isa.LANES:
                raise refuse("plan-capacity", f"{self.core.ub - first} bytes of ub hold no portion")
            for name in self.temporaries:
                take(name, self.portion * WIDTHS[self.kinds[name]], self.kinds[name])
        self.before += [ALL, *fills.body]
        self.work += self.room.values()

    def _spread(self, lines: int) -> list[Statement]:
        """Single numbers, or one of each of so many rows, as blocks of floats."""
        vectors = Vectors(prefix="s")
        for name in self.values:
            if f"{name}_floats" not in self.room or not self._is_single(name):
                continue
            home = self.homes[self.values[name]]
            source, floats = Grid(Place(home.buffer)), Grid(Place(self.room[f"{name}_floats"]))
            if name not in self.spread:
                vectors.operation("cast", floats, (source,), 1, BLOCK // 4)
                continue
            count = lines if _rows_of(home.op) else 1
            if source.width == 2:
                packed = Grid(Place(self.room[f"{name}_packed"]))
                # Whole blocks, which are read on.
                vectors.operation("cast", packed, (source,), 1, -(-count // 8) * 8)
                source = packed
            scratch = Place(self.room["scratch"])
            spread_lanes(vectors, floats.place, source.place, scratch, count)
        return vectors.body

    def _flat(self, size: Value, most: int, sizes: set[int]) -> list[Statement]:
        """All elements of a tile side by side: whole repeats, and what is left of some sizes."""
        widest = max(WIDTHS[self._kind(name)] for step in self.steps for name in _names(step))
        lanes = REPEAT // widest

        def statements(start: Value, repeats: Value, used: int) -> list[Statement]:
            def part(name: str) -> tuple[Place, int, int]:
                """A buffer's place, and its strides of blocks and repeats."""
                place, stride = Place(self._buffer(name)), lanes * WIDTHS[self._kind(name)]
                if name in self.alike or self._is_single(name.removesuffix("_floats")):
                    return place, 0, 0
                moved = place if name in self.room else place.at(start * stride)
                return moved, 1, stride // BLOCK

            return [step.statement(part, repeats, used) for step in self.steps]

        body: list[Statement] = []
        if most >= lanes:
            limit = min(self.portion // lanes or MAX_REPEAT, MAX_REPEAT)

            def piece(start: Value, repeats: Value) -> list[Statement]:
                return statements(start, repeats, lanes)

            body += pieces(piece, size // lanes, most // lanes, "part", limit)
        rests = {each % lanes for each in sizes}
        for rest in sorted(rests - {0}):
            part = [isa.mask_of(lanes, rest), *statements(size // lanes, 1, rest), ALL]
            if len(rests) > 1:
                part = [Loop(f"of_{rest}", select(equal(size % lanes, rest), 1, 0), part)]
            body += part
        return body

    def _by_rows(self, rows: int, columns: int) -> list[Statement]:
        """Rows of a tile, some at a time if there are temporaries."""
        wide = min(columns, WIDEST, self.portion) if self.portion else columns
        count = min(self.portion // padded(wide, BLOCK), rows) if self.portion else rows
        scratch = None
        if self.chooses:
            ends = Place(self.room["end0"]), Place(self.room["end1"])
            scratch = Choice(Place(self.room["bits"]), ends)
        vectors = Vectors()
        names = sorted({name for step in self.steps for name in _names(step)})

        def part(start: Value, lines: int) -> None:
            for first in range(0, columns, wide):
                size = min(wide, columns - first)
                grids = {name: self._grid(name, start, first, size) for name in names}
                compute(vectors, self.steps, grids, lines, size, scratch)

        with vectors.loop(rows // count) as number:
            part(number * count, count)
        if rows % count:
            part(rows - rows % count, rows % count)
        return vectors.body

    def _grid(self, name: str, row: Value, column: int, columns: int) -> Grid:
        """The rows of a buffer from a row and a column on."""
        place, kind = Place(self._buffer(name)), self._kind(name)
        if name in self.alike:
            return Grid(place, spread=True)
        plain = name.removesuffix("_floats")
        if self._is_single(plain):
            op = self.homes[self.values[plain]].op
            pitch = BLOCK if plain in self.spread and _rows_of(op) else 0
            return Grid(place.at(row * pitch), pitch, spread=True)
        if name in self.values:
            op = self.homes[self.values[name]].op
            pitch = self._pitch(op, self._columns(op)) if _rows_of(op) and not self.flat else 0
            return Grid(place.at(row * pitch + column * WIDTHS[kind]), pitch)
        pitch = -(-columns // BLOCK) * BLOCK * WIDTHS[kind]
        one = plain in self.values and not self.flat and plain != "out"
        if one and not _rows_of(self.homes[self.values[plain]].op):
            pitch = 0
        return Grid(place, pitch)

    def _columns(self, op: BufferOp) -> Span:
        return self._tile(op, self.homes[op.result].spans)[1]

    def _buffer(self, name: str) -> Buffer:
        known = self.room.get(name)
        return known if known is not None else self.homes[self.values[name]].buffer

    def _kind(self, name: str) -> str:
        known = self.kinds.get(name)
        return known if known is not None else self.element(_op(self.values[name]))


def _op(value: object) -> BufferOp:
    owner = getattr(value, "owner", None)
    assert isinstance(owner, BufferOp)
    return owner


def _rows_of(op: BufferOp) -> bool:
    """Return True if a buffer's operand has rows of its own."""
    return len(op.tensor_shape) > 1 and bool(op.window.data[-2].dims)


def _names(step: Step) -> tuple[str, ...]:
    return step.to, *step.sources
