"""Softmax and layer normalisation of rows in UB.

Rows of floats lie in a grid, and the results in another. Softmax subtracts the largest element
before it takes exponentials; layer normalisation subtracts the mean before it squares. Sums are of
floats, 64 side by side. Softmax of columns folds whole rows, and spreads nothing: what belongs to a
column lies in its lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.ascend.kernels.folds import FOLDS, LINES, FoldRoom, fold_rows, spread
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors, number, pitch_of
from tilewright.targets.ascend.program import Place


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


def softmax_columns(
    vectors: Vectors, line: Grid, out: Grid, x: Grid, rows: int, columns: int
) -> None:
    """exp(x - largest) over its sum, of each column; ``line`` has room for three rows."""
    other = line.at(pitch_of(columns, 4))
    for fold, source in (("max", x), ("add", out)):
        instruction, nothing = FOLDS[fold]
        vectors.fill(line, 1, columns, nothing)
        vectors.fold_rows(instruction, line, source, rows, columns)
        if fold == "max":
            vectors.operation("vsub", out, (x, line), rows, columns)
            vectors.operation("vexp", out, (out,), rows, columns)
    reciprocal(vectors, line, other, columns)
    vectors.operation("vmul", out, (out, line), rows, columns)
