"""Elementwise computes of tile programs: tiles in UB, and the recipes' instructions on them.

A tile is rows and columns (elements.py says which dims are these). Tiles of elements as they lie
are computed in as many whole repeats as the tile has; others by rows, of which the last columns
come under a mask. Halves are computed on as floats where a function needs it, or a single number
or a column is spread over blocks. Temporaries, and blocks of elements alike, lie in the bytes of UB
that the primitive keeps free after all tiles: a tile is computed in portions for which these have
room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.recipes import Recipe, Step, compute
from tilewright.targets.ascend.kernels.transposing import LINES, SCRATCH, spread_lanes
from tilewright.targets.ascend.kernels.vectors import (
    ALL,
    BOOLEAN,
    CHOICE_BITS,
    REPEAT,
    Choice,
    Grid,
    Room,
    Vectors,
    pieces,
)
from tilewright.targets.ascend.lowering.nest import Span, Spans
from tilewright.targets.ascend.lowering.tiled import Tiled, buffer_of, has_rows
from tilewright.targets.ascend.lowering.walk import Homes
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, DaVinci
from tilewright.targets.ascend.program import Buffer, Loop, Place, Statement
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp

WIDEST = 1024
"""Columns of a portion at most, where it needs temporaries."""


@dataclass(frozen=True)
class Function:
    """The computation of one stage: a recipe, its scalars as C, and which operands are single
    numbers that are known, of which main memory has blocks."""

    recipe: Recipe
    scalars: tuple[str, ...]
    names: tuple[str, ...] = ("x", "y")
    """The recipe's names of the operands, in their order."""
    numbers: frozenset[str] = frozenset()


class Elements(Tiled):
    """The forms of a compute whose stages are ``functions``, the first of several operands."""

    def __init__(
        self,
        core: DaVinci,
        functions: Sequence[Function],
        program: ProgramOp,
        compute: ComputeOp,
        homes: Homes,
    ) -> None:
        super().__init__(program, compute, core, homes, functions[0].names)
        self.functions = functions
        self.kinds: dict[str, str] = {}
        """Element types of the buffers that are no operands."""
        self.alike: dict[str, str] = {}
        """Names of blocks whose elements are all equal, and the element, as C."""
        anchor = functions[0]
        self.spread: list[str] = []
        """Operands of which each row has one element, spread over blocks."""
        self.room: dict[str, Buffer] = {}
        """The buffers after the tiles, in UB."""
        for name, value in self.values.items():
            if name not in anchor.numbers and self.is_single(buffer_of(value)):
                self.spread.append(name)
        self.steps = [step for number in range(len(functions)) for step in self._steps(number)]
        self.chooses = any(step.chooses for step in self.steps)
        kinds = {self.element(buffer_of(value)) for value in self.values.values()}
        self.in_rows = self.chooses or "int8_t" in kinds
        """True if repeats of some steps have other elements than those of others."""
        if self.chooses and self.spread:
            raise self.refusal("a choice would broadcast a column of halves")

    def _steps(self, number: int) -> list[Step]:
        """The steps of a stage on buffers of these names."""
        function, first = self.functions[number], number == 0
        recipe, prefix = function.recipe, "" if first else f"s{number}_"
        read = {name: name if first else "out" for name in function.names[: recipe.operands]}
        element = self.element(buffer_of(self.values["x" if first else "out"]))
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

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """The statements that compute all stages on a tile."""
        out = self.homes[op.output].op
        rows, columns = self.tile_of(out, spans)
        if not self.room:
            self._place()
        cut = self.flat and rows.most > 1 and columns.most < self.columns
        if not self.flat or (cut and self.in_rows):
            lines, lengths = (
                set.union(*map(self.sizes, names)) for names in (("r", "l", "o"), ("c", "w", "e"))
            )
            several = (rows.size, lines), (columns.size, lengths)
            return self.versions(several, lambda sizes: self._by_rows(*sizes))
        if cut:
            # Parts of rows, which are apart where the last ones are shorter.
            line = Loop("line", rows.size)
            line.body += self._flat(columns.size, columns.most, self.sizes("e"), line.variable)
            return [*self._spread(1), ALL, line]
        row = self.pitch_of(out, columns) // WIDTHS[self.element(out)]
        size, most, sizes = rows.size * row, rows.most * row, {n * row for n in self.sizes("o")}
        if rows.most == 1:
            size, most, sizes = columns.size, columns.most, self.sizes("e")
        if self.in_rows:
            return self.versions([(size, sizes)], lambda sizes: self._by_rows(1, *sizes))
        return [*self._spread(1), ALL, *self._flat(size, most, sizes)]

    def _is_single(self, name: str) -> bool:
        return name in self.spread or name in self.functions[0].numbers

    def _place(self) -> None:
        """Give what is no tile its place after the tiles, and fill blocks of elements alike."""
        room = Room(self.core.ub, self.program.symbol.data, self.first_free())
        fills = Vectors(prefix="k")

        def take(name: str, size: int, element: str, value: str = "") -> None:
            self.room[name] = room.buffer(name, size, element)
            if value:
                fills.fill(Grid(Place(self.room[name])), 1, size // WIDTHS[element], value)

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
            left = self.core.ub - room.used
            self.portion = left // (each * isa.LANES) * isa.LANES
            self.portion = min(self.portion, MAX_REPEAT * isa.LANES // 2)
            if self.portion < isa.LANES:
                raise refuse("plan-capacity", f"{left} bytes of ub hold no portion")
            for name in self.temporaries:
                take(name, self.portion * WIDTHS[self.kinds[name]], self.kinds[name])
        self.before += [ALL, *fills.body]
        self.work += self.room.values()

    def _spread(self, lines: int) -> list[Statement]:
        """Spread single numbers, or one of each of ``lines`` rows, over blocks of floats."""
        vectors = Vectors(prefix="s")
        for name in self.values:
            if f"{name}_floats" not in self.room or not self._is_single(name):
                continue
            home = self.homes[self.values[name]]
            source, floats = Grid(Place(home.buffer)), Grid(Place(self.room[f"{name}_floats"]))
            if name not in self.spread:
                vectors.operation("cast", floats, (source,), 1, BLOCK // 4)
                continue
            count = lines if has_rows(home.op) else 1
            if source.width == 2:
                packed = Grid(Place(self.room[f"{name}_packed"]))
                # Whole blocks, which are read on.
                vectors.operation("cast", packed, (source,), 1, -(-count // 8) * 8)
                source = packed
            scratch = Place(self.room["scratch"])
            spread_lanes(vectors, floats.place, source.place, scratch, count)
        return vectors.body

    def _flat(self, size: Value, most: int, sizes: set[int], row: Value = 0) -> list[Statement]:
        """Elements of a tile side by side, all or a row of ``most``: whole repeats, and what is
        left of some sizes."""
        widest = max(WIDTHS[self._kind(name)] for step in self.steps for name in _names(step))
        lanes = REPEAT // widest

        def statements(start: Value, repeats: Value, used: int) -> list[Statement]:
            def part(name: str) -> tuple[Place, int, int]:
                """A buffer's place, and its strides of blocks and repeats."""
                place, stride = Place(self._buffer(name)), lanes * WIDTHS[self._kind(name)]
                if name in self.alike or self._is_single(name.removesuffix("_floats")):
                    return place, 0, 0
                if name not in self.room:
                    place = place.at(start * stride + row * (most * WIDTHS[self._kind(name)]))
                return place, 1, stride // BLOCK

            return [step.statement(part, repeats, used) for step in self.steps]

        body: list[Statement] = []
        if most >= lanes:
            limit = min(self.portion // lanes or MAX_REPEAT, MAX_REPEAT)

            def piece(start: Value, repeats: Value) -> list[Statement]:
                return statements(start, repeats, lanes)

            body += pieces(piece, size // lanes, most // lanes, "part", limit)
            if any(max(WIDTHS[self._kind(n)] for n in _names(s)) < widest for s in self.steps):
                # A repeat of narrower elements has more of them, those of the next repeat.
                body = [isa.mask_of(isa.LANES, lanes), *body, ALL]
        rests = {each % lanes for each in sizes}

        def last(sizes: tuple[int, ...]) -> list[Statement]:
            (rest,) = sizes
            if not rest:
                return []
            return [isa.mask_of(lanes, rest), *statements(size // lanes, 1, rest), ALL]

        return [*body, *self.versions([(size % lanes, rests)], last)]

    def _by_rows(self, rows: int, columns: int) -> list[Statement]:
        """Rows of a tile, some at a time if there are temporaries."""
        most = columns if rows == 1 or not self.portion else WIDEST
        wide = min(columns, self.portion or columns, most)
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
        return [*self._spread(rows), ALL, *vectors.body]

    def _grid(self, name: str, row: Value, column: int, columns: int) -> Grid:
        """The rows of a buffer from a row and a column on."""
        place, kind = Place(self._buffer(name)), self._kind(name)
        if name in self.alike:
            return Grid(place, spread=True)
        plain = name.removesuffix("_floats")
        if self._is_single(plain):
            op = self.homes[self.values[plain]].op
            pitch = BLOCK if plain in self.spread and has_rows(op) else 0
            return Grid(place.at(row * pitch), pitch, spread=True)
        if name in self.values:
            op = self.homes[self.values[name]].op
            pitch = self.pitch_of(op, self._columns(op)) if has_rows(op) else 0
            return Grid(place.at(row * pitch + column * WIDTHS[kind]), pitch)
        pitch = -(-columns // BLOCK) * BLOCK * WIDTHS[kind]
        one = plain in self.values and not self.flat and plain != "out"
        if one and not has_rows(self.homes[self.values[plain]].op):
            pitch = 0
        return Grid(place, pitch)

    def _columns(self, op: BufferOp) -> Span:
        return self.tile_of(op, self.homes[op.result].spans)[1]

    def _buffer(self, name: str) -> Buffer:
        known = self.room.get(name)
        return known if known is not None else self.homes[self.values[name]].buffer

    def _kind(self, name: str) -> str:
        known = self.kinds.get(name)
        return known if known is not None else self.element(buffer_of(self.values[name]))


def _names(step: Step) -> tuple[str, ...]:
    return step.to, *step.sources
