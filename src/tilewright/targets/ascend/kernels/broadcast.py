"""Elementwise operations on operands that broadcast, by any of NumPy's rules.

Dims along which the operands broadcast alike become one. The last two that are left are rows and
columns of tiles, the others loops. Within a tile an operand is a grid, one row, one column, or one
element: what does not change along columns comes as one float a row, and is spread to blocks.
Halves are computed on as floats where a column is spread, or a function needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.recipes import compute, recipe_of
from tilewright.targets.ascend.kernels.shares import Extent, Share, joined, joins, total
from tilewright.targets.ascend.kernels.tiles import Cut, Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import (
    SLACK,
    blocks_of,
    load_rows,
    store_rows,
)
from tilewright.targets.ascend.kernels.turning import LINES, SCRATCH, spread_lanes
from tilewright.targets.ascend.kernels.vectors import REPEAT, Grid, Vectors, pitch_of
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Place, Program, Statement, Tensor

Shape = tuple[int, ...]


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


@dataclass(frozen=True)
class Operand:
    """An operand, or the result, in main memory."""

    name: str
    shape: Shape
    """As that of the result, with 1 where it broadcasts."""
    element: str
    blocks: bool = False
    """True if its matrices are in Nz."""

    @property
    def rows(self) -> bool:
        """True if it has rows of its own, and does not broadcast along them."""
        return self.shape[-2] > 1

    @property
    def columns(self) -> bool:
        """True if it has columns of its own, and does not broadcast along them."""
        return self.shape[-1] > 1

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return WIDTHS[self.element]

    @property
    def strides(self) -> list[int]:
        """Elements from one index to the next; 0 where it broadcasts. Of matrices in Nz columns go
        by blocks of 16."""
        strides: list[int] = []
        step = 1
        shape = self.shape
        if self.blocks:
            height, width = padded(shape[-2]), padded(shape[-1])
            strides, step = [height, CUBE if shape[-2] > 1 else 0], height * width
            shape = shape[:-2]
        for extent in reversed(shape):
            strides.append(step if extent > 1 else 0)
            step *= extent
        return strides[::-1]

    def tensor(self, *, written: bool = False) -> Tensor:
        """The parameter of the kernel."""
        size = prod(self.shape)
        if self.blocks:
            size = prod(self.shape[:-2]) * padded(self.shape[-2]) * padded(self.shape[-1])
        return Tensor(self.name, size * self.width + SLACK, self.element, written=written)

    def main(self, tensor: Tensor, indices: Sequence[Value]) -> Place:
        """Return the address in main memory at which a tile begins."""
        at: Value = 0
        for index, stride in zip(indices, self.strides, strict=True):
            at = at + index * stride
        return Place(tensor, at * self.width)

    def load(self, tiles: Tiles, rows: int, columns: int) -> tuple[Tensor, Grid]:
        """Load the rows of a tile, or the one row; the parameter, and where they lie in UB."""
        tensor, count = self.tensor(), rows if self.rows else 1
        pitch = pitch_of(columns, self.width)
        home = Grid(Place(tiles.tile(self.name, count * pitch, self.element)), pitch)
        tiles.body.extend(self._moved(tiles, tensor, home, count, columns, loads=True))
        return tensor, home if self.rows else replace(home, pitch=0)

    def store(self, tiles: Tiles, home: Grid, rows: int, columns: int) -> Tensor:
        """Store the rows of a tile; the parameter."""
        tensor = self.tensor(written=True)
        tiles.body.extend(self._moved(tiles, tensor, home, rows, columns, loads=False))
        return tensor

    def _moved(
        self, tiles: Tiles, tensor: Tensor, home: Grid, rows: int, columns: int, *, loads: bool
    ) -> list[Statement]:
        main = self.main(tensor, tiles.starts)
        if self.blocks:
            sizes, name = (rows, padded(columns) // CUBE), f"block_{self.name}"
            height = padded(self.shape[-2])
            return blocks_of(home.place, home.pitch, main, height, sizes, name, loads=loads)
        rest = self.width, self.shape[-1] * self.width, f"row_{self.name}"
        if loads:
            return load_rows(home.place, home.pitch, main, rows, columns, *rest)
        return store_rows(main, home.place, home.pitch, rows, columns, *rest)


@dataclass
class _Broadcast:
    operation: str
    extents: Sequence[Extent]
    """The extents of the result."""
    operands: Sequence[Operand]
    scalars: Mapping[str, str]
    core: DaVinci
    name: str
    element: str
    blocks: bool
    """True if the result's matrices are in Nz: columns are then padded to whole blocks."""

    def __post_init__(self) -> None:
        recipe = recipe_of(self.operation, self.core)
        assert recipe is not None
        self.recipe = recipe
        self.width = WIDTHS[self.element]
        spread = any(not operand.columns for operand in self.operands)
        self.wide = self.element == "half" and (self.recipe.wide or spread)
        self.inner = "float" if self.wide else self.element
        self.result = tuple(map(total, self.extents))
        rows, columns = self.extents[-2:]
        if self.blocks and not isinstance(columns, Share):
            columns = padded(columns)
        lanes = REPEAT // WIDTHS[self.inner]
        self.columns = cut(columns, self._most_columns(), lanes, BLOCK // self.width)
        each, fixed = self._bytes(self.columns.size)
        count = max(min((self.core.ub - fixed) // each, LINES), 1)
        self.rows: Cut = cut(rows, count)

    def _pitch(self, columns: int, element: str = "") -> int:
        return pitch_of(columns, WIDTHS[element or self.element])

    def _bytes(self, columns: int) -> tuple[int, int]:
        """Bytes of a row of a tile of so many columns, and those that any number of rows takes.

        Grids and lines come in two slots; what is converted has floats in one beside, and so have
        temporaries."""
        own, inner = self._pitch(columns), self._pitch(columns, self.inner)
        both = 2 * own + (inner if self.wide else 0)
        grids = sum(operand.rows and operand.columns for operand in self.operands) + 1
        lines = sum(not operand.rows and operand.columns for operand in self.operands)
        spread = sum(not operand.columns for operand in self.operands)
        alike = len(self.recipe.constants) + len(self.scalars)
        fixed = spread * (2 * SCRATCH + 3 * LINES * 4) + alike * BLOCK
        return grids * both + len(self.recipe.temporaries) * inner, lines * both + fixed

    def _most_columns(self) -> int:
        """Columns of which 8 rows fit."""
        lanes = REPEAT // WIDTHS[self.inner]
        each, line = self._bytes(lanes)
        fixed = self._bytes(0)[1]
        most = (self.core.ub - fixed) // (8 * each + line - fixed) * lanes
        return max(most, lanes)

    def program(self) -> Program:
        tiles = Tiles(
            self.name, self.core, (*map(each, self.extents[:-2]), self.rows, self.columns)
        )
        vectors = Vectors()
        grids: dict[str, Grid] = {}
        tensors: list[Tensor] = []
        sizes = self.rows.size, self.columns.size
        for name, value in {**self.recipe.constants, **self.scalars}.items():
            grids[name] = tiles.alike(name, value, self.inner)
        for operand in self.operands:
            load = self._grid if operand.columns else self._column
            tensor, grids[operand.name] = load(tiles, vectors, operand)
            tensors.append(tensor)
        for name in self.recipe.temporaries:
            pitch = self._pitch(self.columns.size, self.inner)
            grids[name] = Grid(Place(tiles.kept(name, self.rows.size * pitch, self.inner)), pitch)
        pitch = self._pitch(self.columns.size)
        home = Grid(Place(tiles.tile("out", self.rows.size * pitch, self.element)), pitch)
        grids["out"] = tiles.floats("out", *sizes) if self.wide else home
        compute(vectors, self.recipe.steps, grids, *sizes)
        if self.wide:
            vectors.operation("cast", home, (grids["out"],), *sizes)
        tiles.body.extend(vectors.body)
        result = Operand("out", self.result, self.element, self.blocks)
        out = result.store(tiles, home, *sizes)
        shapes = " and ".join(str(operand.shape) for operand in self.operands)
        return tiles.program((*tensors, out), f"{self.operation} of {shapes} {self.element}s")

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
    """The kernel of an operation on elements of these shapes, by operand (x, y), without flags.

    ``scalars`` are what the recipe asks the caller for, and operands whose elements are all alike,
    as C. ``blocks`` are the operands, and perhaps out, whose matrices are in Nz. Refuses
    (``lower-operation``) what there is no recipe for, and columns that are to be spread from Nz.
    """
    recipe = recipe_of(operation, core)
    if recipe is None or recipe.types.get(element) != element:
        raise refuse("lower-operation", f"{core.name} has no {operation} of {element}s")
    extents, shapes = merged(result, list(operands.values()), matrices=bool(blocks))
    pairs = zip(operands, shapes, strict=True)
    given = [Operand(n, shape, element, n in blocks) for n, shape in pairs]
    if any(operand.blocks and not operand.columns for operand in given):
        raise refuse("lower-operation", f"{operation} would broadcast a column of a matrix in Nz")
    name = name or operation
    inner = scalars or {}
    in_blocks = "out" in blocks
    return _Broadcast(operation, extents, given, inner, core, name, element, in_blocks).program()
