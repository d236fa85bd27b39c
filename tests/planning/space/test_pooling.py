"""Pools behind an anchor in tiles: which windows lie within them, and what the new dims mean."""

from itertools import product
from math import ceil, prod

import pytest

from tilewright.planning.domain import Affine, Dim, Operand, Stage
from tilewright.planning.space.pooling import pooled, windows_of
from tilewright.targets.cpu.planning.cost import box_bytes


def tiled(rows: int, columns: int, tile: int, offset: int = 0) -> Stage:
    """An anchor of 8 channels with results in tiles, reduced over c."""
    dims = [
        Dim("n", 1),
        Dim("co", 8),
        Dim("th", ceil(rows / tile)),
        Dim("tw", ceil(columns / tile)),
    ]
    dims += [Dim("r", tile), Dim("s", tile), Dim("ci", 3, "reduction")]
    access = (
        Affine((("n", 1),)),
        Affine((("co", 1),)),
        Affine((("th", tile), ("r", 1)), offset),
        Affine((("tw", tile), ("s", 1))),
    )
    x = Operand("x", (1, 3), (Affine((("n", 1),)), Affine((("ci", 1),))))
    return Stage("tiled", tuple(dims), (x,), Operand("m", (1, 8, rows, columns), access))


def pool(
    image: tuple[int, int],
    window: tuple[int, int],
    apart: tuple[int, int] | None = None,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    spread: int = 1,
) -> Stage:
    """A pool over an image of 8 channels; pads are top, left, bottom, right."""
    apart = apart or window
    sizes = [image[i] + pads[i] + pads[2 + i] - (window[i] - 1) * spread - 1 for i in (0, 1)]
    shape = (1, 8, *(size // step + 1 for size, step in zip(sizes, apart, strict=True)))
    names = [("n", "n"), ("c", "c"), ("oh", "kh"), ("ow", "kw")]
    dims = [Dim(name, extent) for (name, _), extent in zip(names, shape, strict=True)]
    dims += [Dim("kh", window[0], "reduction"), Dim("kw", window[1], "reduction")]
    source = (
        *(Affine(((name, 1),)) for name in ("n", "c")),
        Affine((("oh", apart[0]), ("kh", spread)), -pads[0]),
        Affine((("ow", apart[1]), ("kw", spread)), -pads[1]),
    )
    target = tuple(Affine(((name, 1),)) for name, _ in names)
    return Stage(
        "max_pool",
        tuple(dims),
        (Operand("m", (1, 8, *image), source),),
        Operand("y", shape, target),
    )


CASES = list(product((8, 9, 10, 11), (4, 6, 2), ((2, 2), (1, 2), (2, 1), (3, 2), (6, 3))))


@pytest.mark.parametrize(("rows", "tile", "window"), CASES, ids=str)
def test_every_result_is_made_once_of_its_window_within_a_tile(
    rows: int, tile: int, window: tuple[int, int]
) -> None:
    image = rows, 13
    anchor, behind = tiled(*image, tile), pool(image, window)
    found = pooled(anchor, behind)
    if any(tile % extent for extent in window):
        assert found is None
        return
    assert found is not None
    fresh, stage = found
    extents = fresh.extents
    assert stage.inputs[0].access == anchor.output.access == fresh.output.access
    assert stage.output.dims == stage.output.dims & set(extents)
    for axis, (tiles, each, inner) in ((2, ("th", "pr", "r")), (3, ("tw", "ps", "s"))):
        extent, results = window[axis - 2], stage.output.shape[axis]
        each = each if extent > 1 else inner
        made: list[int] = []
        for t, p in product(range(extents[tiles]), range(extents[each])):
            place = {tiles: (t, 1), each: (p, 1)}
            result, _ = stage.output.access[axis].interval(place)
            start, _ = anchor.output.access[axis].interval({tiles: (t, 1)})
            assert start <= result * extent and (result + 1) * extent <= start + tile
            made.append(result)
        assert made == list(range(len(made))) and len(made) >= results
        assert len(made) - results < extents[each], "tiles without a window are left out"
    assert box_bytes(stage.output, extents) == 4 * prod(stage.output.shape)
    kinds = {dim.name: dim.kind for dim in stage.dims}
    reduced = {inner for inner, extent in zip("rs", window, strict=True) if extent > 1}
    assert {name for name, kind in kinds.items() if kind == "reduction"} == reduced


@pytest.mark.parametrize(
    "stage",
    [
        pool((8, 8), (3, 3), (2, 2)),
        pool((8, 8), (1, 1), (2, 2)),
        pool((8, 8), (2, 2), (3, 2)),
        pool((8, 8), (2, 2), pads=(1, 0, 1, 0)),
        pool((8, 8), (2, 2), pads=(0, 1, 0, 0)),
        pool((7, 8), (2, 2), pads=(0, 0, 1, 0)),  # rounded up
        pool((8, 8), (2, 2), spread=2),
    ],
    ids=str,
)
def test_windows_that_overlap_leave_gaps_or_are_padded(stage: Stage) -> None:
    assert windows_of(stage) is None
    assert pooled(tiled(8, 8, 4), stage) is None


def test_padding_that_rounding_down_leaves_unread_does_not_matter() -> None:
    assert windows_of(pool((8, 8), (2, 2), pads=(0, 0, 1, 1))) == (1, 1, 2, 2)


def test_anchors_without_tiles_do_not_pool() -> None:
    points = tiled(8, 8, 1)
    assert pooled(points, pool((8, 8), (2, 2))) is None
    assert pooled(tiled(8, 8, 4, offset=-1), pool((8, 8), (2, 2))) is None
    anchor = tiled(8, 8, 4)
    access = (*anchor.output.access[:2], Affine((("oh", 1),)), Affine((("ow", 1),)))
    rows = Stage(
        "conv",
        (*anchor.dims, Dim("oh", 8), Dim("ow", 8)),
        anchor.inputs,
        Operand("m", (1, 8, 8, 8), access),
    )
    assert pooled(rows, pool((8, 8), (2, 2))) is None
