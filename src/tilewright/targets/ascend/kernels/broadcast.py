"""Elementwise operations on operands that broadcast, by any of NumPy's rules.

Dims along which the operands broadcast alike become one. The last two that are left are rows and
columns of tiles, the others loops. Within a tile an operand is a grid, one row, one column, or one
element: what does not change along columns comes as one float a row, and is spread to blocks.
Halves are computed on as floats where a column is spread, or a function needs it.

Operands of one shape are computed as they lie: a tile is one row, a portion of whole repeats, and
where a launch says how much of a tensor there is (``Short``), portions lie within one run of what
the length counts, and those after the length are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.errors import refuse
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.choices import choice_bytes, choice_room
from tilewright.targets.ascend.kernels.recipes import RECIPES, Recipe, compute, recipe_of
from tilewright.targets.ascend.kernels.shares import Extent, Share, joined, joins, total
from tilewright.targets.ascend.kernels.tiles import Cut, Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import Operand, Shape, load_rows
from tilewright.targets.ascend.kernels.transposing import LINES, SCRATCH, spread_lanes
from tilewright.targets.ascend.kernels.vectors import BOOLEAN, REPEAT, Grid, Vectors, pitch_of
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, DaVinci
from tilewright.targets.ascend.program import LENGTH, Place, Program, Tensor


def merged(
    result: Sequence[Extent], operands: Sequence[Shape], *, matrices: bool = False
) -> tuple[tuple[Extent, ...], list[Shape]]:
    """Extents of as few dims as tell the operands' broadcasts, and what blocks share; shapes all of
    one rank, two at least.

    The last two dims of ``matrices`` stay as they are.
    """
    rank = len(result)
    whole = [(1,) * (rank - len(shape)) + shape for shape in operands]
    if matrices:
        inner = result[-2:]
        outer, parts = merged(result[:-2], [shape[:-2] for shape in whole])
        pairs = zip(parts, whole, strict=True)
        return (*outer, *inner), [(*part, *shape[-2:]) for part, shape in pairs]
    extents: list[Extent] = []
    patterns: list[tuple[bool, ...]] = []
    for axis, extent in enumerate(result):
        if extent == 1:
            continue
        pattern = tuple(shape[axis] == total(extent) for shape in whole)
        if patterns and patterns[-1] == pattern and joins(extents[-1], extent):
            extents[-1] = joined((extents[-1], extent))
        else:
            extents.append(extent)
            patterns.append(pattern)
    while len(extents) < 2:
        extents.insert(0, 1)
        patterns.insert(0, (True,) * len(operands))
    shapes = [
        tuple(
            total(extent) if pattern[number] else 1
            for extent, pattern in zip(extents, patterns, strict=True)
        )
        for number in range(len(operands))
    ]
    return tuple(extents), shapes


SHORT_PORTION = 2048
"""Elements of a portion at most where a launch says how much there is."""


@dataclass(frozen=True)
class Short:
    """A tensor as ``outer`` runs of ``rows`` times ``inner`` elements; a launch has ``LENGTH`` rows
    of each, at most ``longest`` (``rows`` may be more: whole blocks)."""

    outer: Extent
    rows: Extent
    inner: int
    longest: int

    @property
    def run(self) -> Extent:
        """Elements of a run."""
        return joined((self.rows, self.inner))


@dataclass
class _Points:
    operation: str
    extents: Sequence[Extent]
    """The extents of the result."""
    operands: Sequence[Operand]
    scalars: Mapping[str, str]
    core: DaVinci
    name: str
    element: str
    about: str
    blocks: bool = False
    """True if the result's matrices are in Nz: columns are then padded to whole blocks."""
    short: Short | None = None

    def __post_init__(self) -> None:
        self.recipe = _recipe(self.operation, self.element, self.core)
        self.width = WIDTHS[self.element]
        self.result = tuple(map(total, self.extents))
        spread = any(map(self._spreads, self.operands))
        self.wide = self.element == "half" and (self.recipe.wide or spread)
        self.inner = "float" if self.wide else self.element
        self.stored = self.recipe.types[self.element]
        self.alike = {**self.recipe.constants, **self.scalars}
        self.chooses = any(step.chooses for step in self.recipe.steps)
        if self.chooses and spread:
            raise refuse("lower-operation", f"{self.name} would broadcast a column of halves")
        rows, columns = self.extents[-2:]
        if self.blocks and not isinstance(columns, Share):
            columns = padded(columns)
        kinds = (self.element, self.inner, self.stored, *map(self._kind, self.recipe.temporaries))
        lanes = REPEAT // max(WIDTHS[kind] for kind in kinds)
        most = self._portion(lanes) if self.result[-2] == 1 else self._most_columns(lanes)
        self.columns = cut(columns, most, lanes, BLOCK // WIDTHS[self.stored])
        each, fixed = self._bytes(self.columns.size)
        count = max(min((self.core.ub - fixed) // each, LINES), 1)
        self.rows: Cut = cut(rows, count)

    def _spreads(self, operand: Operand) -> bool:
        """Return True if an operand has one element for all columns of a row."""
        return operand.shape[-1] < self.result[-1]

    def _kind(self, name: str) -> str:
        """The element type of a temporary or a constant."""
        return self.recipe.kinds.get(name, self.inner)

    def _pitch(self, columns: int, element: str = "") -> int:
        return pitch_of(columns, WIDTHS[element or self.element])

    def _bytes(self, columns: int) -> tuple[int, int]:
        """Bytes of a row of a tile of so many columns, and those that any number of rows takes.

        Grids and lines come in two slots; what is converted has floats in one beside, and so have
        temporaries."""
        stored, inner = self._pitch(columns), self._pitch(columns, self.inner)
        both = 2 * stored + (inner if self.wide else 0)
        spread = sum(map(self._spreads, self.operands))
        grids = sum(o.rows and not self._spreads(o) for o in self.operands) + 1
        lines = len(self.operands) + 1 - grids - spread
        fixed = spread * (2 * SCRATCH + 3 * LINES * 4) + len(self.alike) * BLOCK
        fixed += choice_bytes(0) if self.chooses else 0
        return grids * both + len(self.recipe.temporaries) * inner, lines * both + fixed

    def _most_columns(self, lanes: int) -> int:
        """Columns of which 8 rows fit."""
        each, line = self._bytes(lanes)
        fixed = self._bytes(0)[1]
        most = (self.core.ub - fixed) // (8 * each + line - fixed) * lanes
        return max(most, lanes)

    def _portion(self, lanes: int) -> int:
        """Elements of the one row of a tile: an instruction of each step computes them."""
        size = len(self.operands) * self.width + WIDTHS[self.stored]
        floats = 4 * (len(self.operands) + 1) if self.wide else 0
        rest = sum(WIDTHS[self._kind(name)] for name in self.recipe.temporaries)
        most = (self.core.ub - self._bytes(0)[1]) // (2 * (size + floats + rest)) // lanes
        if most < 1:
            raise refuse("plan-capacity", f"{self.name}: {self.core.ub} bytes of ub hold no repeat")
        portion = min(most, MAX_REPEAT) * lanes
        return min(portion, SHORT_PORTION) if self.short else portion

    def program(self) -> Program:
        axes = (*map(each, self.extents[:-2]), self.rows, self.columns)
        tiles, vectors = Tiles(self.name, self.core, axes), Vectors()
        if self.short is not None:
            tiles.shorten(LENGTH * self.short.inner)
        grids: dict[str, Grid] = {}
        tensors: list[Tensor] = []
        sizes = self.rows.size, self.columns.size
        for name, value in self.alike.items():
            grids[name] = tiles.alike(name, value, self._kind(name))
        for operand in self.operands:
            load = self._column if self._spreads(operand) else self._grid
            tensor, grids[operand.name] = load(tiles, vectors, operand)
            tensors.append(tensor)
        for name in self.recipe.temporaries:
            kind = self._kind(name)
            pitch = self._pitch(self.columns.size, kind)
            grids[name] = Grid(Place(tiles.kept(name, self.rows.size * pitch, kind)), pitch)
        pitch = self._pitch(self.columns.size, self.stored)
        home = Grid(Place(tiles.tile("out", self.rows.size * pitch, self.stored)), pitch)
        grids["out"] = tiles.floats("out", *sizes) if self.wide else home
        scratch = choice_room(tiles) if self.chooses else None
        compute(vectors, self.recipe.steps, grids, *sizes, scratch)
        if self.wide:
            vectors.operation("cast", home, (grids["out"],), *sizes)
        tiles.body.extend(vectors.body)
        out = Operand("out", self.result, self.stored, self.blocks).store(tiles, home, *sizes)
        return tiles.program(
            *((*tensors, out), f"{self.operation} of {self.about}"),
            0 if self.short is None else self.short.longest,
        )

    def _grid(self, tiles: Tiles, vectors: Vectors, operand: Operand) -> tuple[Tensor, Grid]:
        """Load rows, or one row."""
        tensor, grid = operand.load(tiles, self.rows.size, self.columns.size)
        if not self.wide:
            return tensor, grid
        rows = self.rows.size if operand.rows else 1
        floats = tiles.floats(operand.name, rows, self.columns.size)
        if not operand.rows:
            floats = replace(floats, pitch=0)
        vectors.operation("cast", floats, (grid,), rows, self.columns.size)
        return tensor, floats

    def _column(self, tiles: Tiles, vectors: Vectors, operand: Operand) -> tuple[Tensor, Grid]:
        """Load an element a row, or one, and spread it to blocks."""
        tensor, count = operand.tensor(), self.rows.size if operand.rows else 1
        packed = Grid(Place(tiles.tile(operand.name, LINES * self.width, self.element)))
        main = operand.main(tensor, tiles.starts)
        tiles.body.extend(load_rows(packed.place, 0, main, 1, count, self.width))
        if self.wide:
            floats = Grid(Place(tiles.kept(f"{operand.name}_floats", LINES * 4)))
            # Whole blocks, which are read on.
            vectors.operation("cast", floats, (packed,), 1, -(-count // 8) * 8)
            packed = floats
        scratch = Place(tiles.kept(f"{operand.name}_scratch", SCRATCH))
        spread = Place(tiles.kept(f"{operand.name}_spread", SCRATCH))
        spread_lanes(vectors, spread, packed.place, scratch, count)
        return tensor, Grid(spread, BLOCK if operand.rows else 0, spread=True)


def _recipe(operation: str, element: str, core: DaVinci) -> Recipe:
    recipe = recipe_of(operation, core)
    if recipe is None or element not in recipe.types:
        reason = f"{core.name} has no {operation} of {element}"
        raise refuse("lower-operation", reason, help=", ".join(RECIPES))
    return recipe


def elementwise(
    operation: str,
    element: str,
    size: Extent,
    core: DaVinci,
    *,
    scalars: tuple[str, ...] = (),
    constants: Mapping[str, str] | None = None,
    name: str = "",
    short: Short | None = None,
) -> Program:
    """The kernel of an operation on ``size`` elements as they lie, without flags.

    Parameters are the operands, then the result. ``scalars`` are C's, and so are ``constants``:
    operands, by name, of which all elements are alike. ``short`` says what a launch's length
    counts. Refuses (``lower-operation``) what the core has no instruction for.
    """
    recipe = _recipe(operation, element, core)
    alike = {**dict(zip(recipe.scalars, scalars, strict=True)), **(constants or {})}
    extents = (1, size) if short is None else (short.outer, 1, short.run)
    shape = tuple(map(total, extents))
    names = [name for name in ("x", "y")[: recipe.operands] if name not in alike]
    given = [Operand(name, shape, element) for name in names]
    about = f"{total(size)} {element}"
    return _Points(
        *(operation, extents, given, alike, core, name or operation, element, about),
        short=short,
    ).program()


def broadcast(
    operation: str,
    result: Sequence[Extent],
    operands: Mapping[str, Shape],
    core: DaVinci,
    *,
    scalars: Mapping[str, str] | None = None,
    name: str = "",
    element: str = "float",
    blocks: Collection[str] = (),
) -> Program:
    """The kernel of an operation on elements of these shapes, by operand (x, y, and c, the booleans
    of a choice), without flags.

    ``scalars`` are what the recipe asks the caller for, and operands whose elements are all alike,
    as C. ``blocks`` are the operands, and perhaps out, whose matrices are in Nz. Refuses
    (``lower-operation``) what there is no recipe for, and columns that are to be spread from Nz.
    """
    extents, shapes = merged(result, list(operands.values()), matrices=bool(blocks))
    pairs = zip(operands, shapes, strict=True)
    kinds = {name: BOOLEAN if name == "c" else element for name in operands}
    given = [Operand(n, shape, kinds[n], n in blocks) for n, shape in pairs]
    if any(operand.blocks and not operand.columns for operand in given):
        raise refuse("lower-operation", f"{operation} would broadcast a column of a matrix in Nz")
    about = f"{' and '.join(str(operand.shape) for operand in given)} {element}s"
    return _Points(
        *(operation, extents, given, scalars or {}, core, name or operation, element, about),
        blocks="out" in blocks,
    ).program()
