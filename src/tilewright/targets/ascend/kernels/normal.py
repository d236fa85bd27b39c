"""Softmax and layer normalisation of rows in UB, and whole kernels of them.

Statements first: rows of floats lie in a grid, and the results in another. Softmax subtracts the
largest element before it takes exponentials; layer normalisation subtracts the mean before it
squares. Sums are of floats, 64 side by side.

A kernel takes as many rows at once as UB holds, at most 128, in two slots; rows longer than UB are
refused (``plan-capacity``). Softmax along another axis than the last folds whole rows, and spreads
nothing: what belongs to a column lies in its lane.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.folds import (
    FOLDS,
    LINES,
    MOST_ROWS,
    FoldRoom,
    fold_bytes,
    fold_room,
    fold_rows,
    spread,
)
from tilewright.targets.ascend.kernels.shares import Extent, joined, total
from tilewright.targets.ascend.kernels.tiles import Cut, Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, Operand, load_rows
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors, number, pitch_of
from tilewright.targets.ascend.machine import BLOCK, DaVinci
from tilewright.targets.ascend.program import LENGTH, Place, Program, Tensor


def softmax_rows(
    vectors: Vectors, room: FoldRoom, out: Grid, x: Grid, rows: int, columns: int
) -> None:
    """exp(x - largest) over its sum, of each row; ``out`` may be ``x``."""
    fold_rows(vectors, room, "max", x, rows, columns)
    largest = spread(vectors, room)
    vectors.operation("vsub", out, (x, largest), rows, columns)
    vectors.operation("vexp", out, (out,), rows, columns)
    total = fold_rows(vectors, room, "add", out, rows, columns)
    reciprocal(vectors, total, Grid(Place(room.scratch)), LINES)
    vectors.operation("vmul", out, (out, spread(vectors, room)), rows, columns)


@dataclass(frozen=True)
class Norm:
    """The settings of layer normalisation."""

    epsilon: float = 1e-5
    centred: bool = True
    scaled: bool = False
    shifted: bool = False


def normalise_rows(
    vectors: Vectors,
    room: FoldRoom,
    out: Grid,
    x: Grid,
    rows: int,
    columns: int,
    of: Norm,
    scale: Grid | None = None,
    shift: Grid | None = None,
) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, of each row; ``x`` is overwritten.

    Without ``centred`` nothing is subtracted, and the mean of the squares is in the variance's
    place. ``out`` must not be ``x``; scale and shift are one row.
    """
    source = x
    if of.centred:
        mean = fold_rows(vectors, room, "add", x, rows, columns)
        vectors.operation("vmuls", mean, (mean,), 1, LINES, number(1 / columns))
        vectors.operation("vsub", out, (x, spread(vectors, room)), rows, columns)
        source = out
        vectors.operation("vmul", x, (out, out), rows, columns)
    else:
        vectors.operation("vmul", out, (x, x), rows, columns)
    squares = fold_rows(vectors, room, "add", x if of.centred else out, rows, columns)
    vectors.operation("vmuls", squares, (squares,), 1, LINES, number(1 / columns))
    vectors.operation("vadds", squares, (squares,), 1, LINES, number(of.epsilon))
    reciprocal_root(vectors, squares, Grid(Place(room.scratch)), LINES)
    vectors.operation("vmul", out, (source, spread(vectors, room)), rows, columns)
    if scale is not None:
        vectors.operation("vmul", out, (out, scale), rows, columns)
    if shift is not None:
        vectors.operation("vadd", out, (out, shift), rows, columns)


def reciprocal(vectors: Vectors, x: Grid, other: Grid, count: int) -> None:
    """x = 1 / x; ``other`` is twice as long, whole blocks.

    ``vrec`` is an estimate, which two steps of Newton's method refine: y (2 - x y)."""
    _refined(vectors, x, other, count, "vrec", ("-1.0f", "2.0f"))


def reciprocal_root(vectors: Vectors, x: Grid, other: Grid, count: int) -> None:
    """x = 1 / sqrt(x); ``other`` is twice as long: y (3 - x y y) / 2 from ``vrsqrt``'s estimate."""
    _refined(vectors, x, other, count, "vrsqrt", ("-0.5f", "1.5f"))


def _refined(
    vectors: Vectors, x: Grid, other: Grid, count: int, name: str, factors: tuple[str, str]
) -> None:
    y, step = other, other.at(pitch_of(count, 4))
    vectors.operation(name, y, (x,), 1, count)
    for _ in range(2):
        if name == "vrsqrt":
            vectors.operation("vmul", step, (y, y), 1, count)
        vectors.operation("vmul", step, (step, x) if name == "vrsqrt" else (x, y), 1, count)
        vectors.operation("vmuls", step, (step,), 1, count, factors[0])
        vectors.operation("vadds", step, (step,), 1, count, factors[1])
        vectors.operation("vmul", y, (y, step), 1, count)
    vectors.operation("vmuls", x, (y,), 1, count, "1.0f")


@dataclass(frozen=True)
class Rows:
    """The matrices of a kernel: row by row or in Nz."""

    count: Extent
    rows: Extent
    columns: int
    element: str = "float"
    blocks: bool = False
    """True if they are in Nz, which halves alone are."""
    short: bool = False
    """True if a launch has ``LENGTH`` rows of each, at most these, the first ones; row by row there
    is one matrix then."""

    def __str__(self) -> str:
        form = " in Nz" if self.blocks else ""
        return (
            f"{total(self.count) * total(self.rows)} rows of {self.columns} {self.element}s{form}"
        )

    @property
    def axes(self) -> tuple[Extent, Extent]:
        """Matrices and their rows; matrices row by row are one."""
        return (self.count, self.rows) if self.blocks else (1, joined((self.count, self.rows)))

    def operand(self, name: str) -> Operand:
        """An operand, or the result."""
        shape = (*map(total, self.axes), self.columns)
        return Operand(name, shape, self.element, self.blocks)


@contextmanager
def as_floats(
    tiles: Tiles, vectors: Vectors, source: Grid, result: Grid, sizes: tuple[int, int]
) -> Generator[tuple[Grid, Grid]]:
    """Operand and result of what is computed within: floats, to which halves are converted before,
    and from which they are after."""
    if source.element == "float":
        yield source, result
        return
    wide, narrowed = (tiles.floats(name, *sizes) for name in ("x", "out"))
    vectors.operation("cast", wide, (source,), *sizes)
    yield wide, narrowed
    vectors.operation("cast", result, (narrowed,), *sizes)


Compute = Callable[[Vectors, FoldRoom, Grid, Grid, int, Sequence[Grid]], None]
"""Statements for a tile: writer, memory, out, x, rows, and the operands of one row."""


def _rows(
    of: Rows, core: DaVinci, name: str, about: str, extra: Sequence[str], compute: Compute
) -> Program:
    """A kernel that takes rows to rows of as many elements; halves are computed on as floats. After
    x come ``extra`` operands, of one row."""
    columns, element = of.columns, of.element
    width = WIDTHS[element]
    more = [Tensor(line, columns * width + SLACK, element) for line in extra]
    rows, slots = _tile(of, core, name, len(extra))
    sizes = rows.size, columns
    tiles = Tiles(name, core, (each(of.axes[0]), rows))
    if of.short:
        tiles.shorten(LENGTH)
    folds = fold_room(tiles.room, rows.size)
    tiles.buffers += folds.buffers
    lines = [_line(tiles, tensor, columns) for tensor in more]
    at = (*tiles.starts, 0)
    x, loaded = of.operand("x").load(tiles, *sizes, at, slots)
    pitch = pitch_of(columns, width)
    home = Grid(Place(tiles.tile("out", rows.size * pitch, element, slots)), pitch)
    vectors = Vectors()
    with as_floats(tiles, vectors, loaded, home, sizes) as (source, result):
        compute(vectors, folds, result, source, rows.size, lines)
    tiles.body.extend(vectors.body)
    out = of.operand("out").store(tiles, home, *sizes, at)
    return tiles.program((x, *more, out), about, total(of.rows) if of.short else 0)


def _line(tiles: Tiles, tensor: Tensor, columns: int) -> Grid:
    """An operand of one row, loaded once, as floats."""
    width = WIDTHS[tensor.element]
    home = Place(tiles.kept(tensor.name, pitch_of(columns, width), tensor.element))
    tiles.before += load_rows(home, 0, Place(tensor), 1, columns, width)
    if tensor.element == "float":
        return Grid(home)
    wide, vectors = Grid(tiles.floats(tensor.name, 1, columns).place), Vectors()
    vectors.operation("cast", wide, (Grid(home),), 1, columns)
    tiles.before += vectors.body
    return wide


def _tile(of: Rows, core: DaVinci, name: str, lines: int) -> tuple[Cut, int]:
    """Rows of a tile, and its slots: two, as long as 8 rows fit twice."""
    pitch = pitch_of(of.columns, WIDTHS[of.element])
    wide = pitch_of(of.columns, 4) if of.element == "half" else 0
    room = core.ub - lines * (pitch + wide)
    for slots, fewest in ((2, 8), (1, 1)):
        for rows in (*range(MOST_ROWS, 8, -8), 8, 4, 2, 1):
            each = 2 * (slots * pitch + wide)
            if rows >= fewest and fold_bytes(rows) + rows * each <= room:
                return cut(of.axes[1], rows), slots
    raise refuse(
        "plan-capacity",
        f"{name}: two rows of {of.columns} elements are more than the {core.ub} bytes of ub hold",
        help="shorter rows",
    )


def softmax(of: Rows, core: DaVinci, name: str = "softmax") -> Program:
    """The kernel of softmax along the rows of ``x``, without flags: parameters x, out."""

    def compute(
        v: Vectors, room: FoldRoom, out: Grid, x: Grid, count: int, extra: Sequence[Grid]
    ) -> None:
        softmax_rows(v, room, out, x, count, of.columns)

    return _rows(of, core, name, f"softmax of {of}", (), compute)


def layer_norm(of: Rows, core: DaVinci, norm: Norm, name: str = "layer_norm") -> Program:
    """The kernel of layer normalisation, without flags: x, perhaps scale and shift, out."""

    def compute(
        v: Vectors, room: FoldRoom, out: Grid, x: Grid, count: int, extra: Sequence[Grid]
    ) -> None:
        scale = extra[0] if norm.scaled else None
        shift = extra[-1] if norm.shifted else None
        normalise_rows(v, room, out, x, count, of.columns, norm, scale, shift)

    extra = [n for n, present in (("scale", norm.scaled), ("shift", norm.shifted)) if present]
    return _rows(of, core, name, f"layer normalisation of {of}", extra, compute)


def softmax_across(
    outer: Extent,
    rows: int,
    columns: Extent,
    core: DaVinci,
    name: str = "softmax",
    element: str = "float",
) -> Program:
    """The kernel of softmax down the columns of ``outer`` matrices, without flags: x, out."""
    narrow = WIDTHS[element]
    matrices, line_length = total(outer), total(columns)
    # Two tiles in two slots, of halves two of floats, too; and three rows: what was folded, and
    # two for its reciprocal.
    size = 4 * narrow + (8 if element == "half" else 0)
    most = core.ub // (size * rows + 3 * 4)
    granule = BLOCK // narrow
    if most < min(granule, line_length):
        raise refuse(
            "plan-capacity",
            f"{name}: columns of {rows} elements, {granule} at a time, are more than the {core.ub} "
            "bytes of ub hold",
            help="shorter columns",
        )
    width = cut(columns, most if most < 64 else most // 64 * 64, granule)
    pitch, wide = pitch_of(width.size, narrow), pitch_of(width.size, 4)
    tiles = Tiles(name, core, (each(outer), width))
    shape, at = (matrices, rows, line_length), (tiles.starts[0], 0, tiles.starts[1])
    x, given = Operand("x", shape, element).load(tiles, rows, width.size, at)
    home = Grid(Place(tiles.tile("out", rows * pitch, element)), pitch)
    line = Grid(Place(tiles.kept("line", wide)))
    other = Grid(Place(tiles.kept("other", 2 * wide)))
    vectors = Vectors()
    with as_floats(tiles, vectors, given, home, (rows, width.size)) as (wide_input, result):
        for fold, source in (("max", wide_input), ("add", result)):
            instruction, nothing = FOLDS[fold]
            vectors.fill(line, 1, width.size, nothing)
            vectors.fold_rows(instruction, line, source, rows, width.size)
            if fold == "max":
                vectors.operation("vsub", result, (wide_input, line), rows, width.size)
                vectors.operation("vexp", result, (result,), rows, width.size)
        reciprocal(vectors, line, other, width.size)
        vectors.operation("vmul", result, (result, line), rows, width.size)
    tiles.body.extend(vectors.body)
    out = Operand("out", shape, element).store(tiles, home, rows, width.size, at)
    about = f"softmax of {matrices} x {line_length} columns of {rows} {element}s"
    return tiles.program((x, out), about)
