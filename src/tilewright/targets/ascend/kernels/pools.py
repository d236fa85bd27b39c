"""Pools of images in NC1HWC0: planes of 16 channels, [h][w][16] halves, a block a pixel.

A repeat has eight pixels: a stride of the window is the operand's stride between blocks, and a tap
a place where the operand begins. A pool is as many maxima as the window has taps, each of several
rows of results. Averages are sums of floats, and are multiplied by one number or, where windows at
the edges count fewer elements, by a number for each pixel. Padding is in UB alone: a tile is filled
with it, and the pixels that lie in the image are loaded over it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.nest.value import greatest, least
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.choices import choice_bytes, choice_room
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, load_rows, store_rows
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors, number
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Place, Program, Tensor

PIXEL = BLOCK
"""Bytes of a pixel."""


@dataclass(frozen=True)
class Window:
    """The windows of a pool."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)

    def span(self, axis: int, count: int = 1) -> int:
        """Pixels that so many windows beside each other cover."""
        reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        return (count - 1) * self.strides[axis] + reach

    def results(self, axis: int, extent: int) -> int:
        """Return the number of windows that an extent holds."""
        return (extent - self.span(axis)) // self.strides[axis] + 1

    @property
    def taps(self) -> list[tuple[int, int]]:
        """Rows and columns of pixels from a window's first."""
        return [
            (row * self.dilations[0], column * self.dilations[1])
            for row in range(self.kernel[0])
            for column in range(self.kernel[1])
        ]


def pool(
    fold: str,
    planes: Extent,
    height: int,
    width: int,
    window: Window,
    core: DaVinci,
    *,
    pads: tuple[int, ...] = (0, 0, 0, 0),
    lines: Extent | None = None,
    factor: float = 1.0,
    factors: bool = False,
    name: str = "pool",
) -> Program:
    """The kernel of a pool, without flags: x, perhaps factors, out.

    ``fold`` is max, or add for averages, whose sums are multiplied by ``factor`` or ``factors``, 16
    floats alike for each pixel of the result. ``pads`` are pixels above, on the left, below and on
    the right, ``lines`` the result's rows of pixels, where blocks share them. Refuses
    (``plan-capacity``) rows of pixels that UB does not hold, and (``lower-operation``) tiles of
    rows that lie in the padding alone.
    """
    above, left, below, right = pads
    wide = width + left + right
    rows, columns = window.results(0, height + above + below), window.results(1, wide)
    row = cut(lines or rows, _most_rows(fold, rows, columns, wide, window, core, factors, name), 1)
    high = window.span(0, row.size)
    last = (rows - row.size) * window.strides[0]
    if above >= high or last - above >= height:
        raise refuse("lower-operation", "windows that see nothing but padding have no kernel")
    count = total(planes)
    x = Tensor("x", count * height * width * PIXEL + SLACK)
    out = Tensor("out", count * rows * columns * PIXEL + SLACK, written=True)
    about = f"{fold} of windows {window.kernel} of {count} planes of {height} x {width} pixels"
    tensors = [x]
    tiles = Tiles(name, core, (each(planes), row))
    source = Place(tiles.tile("x", high * wide * PIXEL, "half"))
    result = Place(tiles.tile("out", row.size * columns * PIXEL, "half"))
    plane, first = tiles.starts
    if any(pads):
        filling = Vectors(prefix="p")
        value = "-1.0f / 0.0f" if fold == "max" else "0.0f"
        filling.fill(Grid(source), 1, high * wide * CUBE, value)
        top = first * window.strides[0] - above
        start, end = greatest(top, 0), least(top + high, height)
        inside = source.at(((start - top) * wide + left) * PIXEL)
        image = Place(x, (plane * height + start) * (width * PIXEL))
        tiles.body.extend(filling.body)
        tiles.body.append(isa.copy(inside, image, end - start, width, 0, left + right))
    else:
        at = (plane * height + first * window.strides[0]) * (width * PIXEL)
        tiles.body.extend(load_rows(source, 0, Place(x, at), 1, high * width * CUBE, 2))
    count = columns * CUBE
    grid = Grid(result, columns * PIXEL)
    taps = [
        Grid(
            source.at((down * wide + across) * PIXEL),
            window.strides[0] * wide * PIXEL,
            blocks=window.strides[1],
        )
        for down, across in window.taps
    ]
    vectors = Vectors()
    if fold == "max":
        # Padding and what is no number take no part.
        low, scratch = tiles.alike("low", "-1.0f / 0.0f"), choice_room(tiles)
        pixels = Grid(source)
        vectors.choose(
            "eq", pixels, (pixels, pixels), (pixels, low), 1, high * wide * CUBE, scratch
        )
        # At first the tap itself, of which the others take the rest.
        vectors.operation("vmax", grid, (taps[0], taps[-1]), row.size, count)
        for tap in taps[1:-1]:
            vectors.operation("vmax", grid, (grid, tap), row.size, count)
    else:
        sums, widened = (
            Grid(Place(tiles.kept(what, row.size * count * 4)), count * 4)
            for what in ("sums", "tap")
        )
        vectors.operation("cast", sums, taps[:1], row.size, count)
        for tap in taps[1:]:
            vectors.operation("cast", widened, (tap,), row.size, count)
            vectors.operation("vadd", sums, (sums, widened), row.size, count)
        if factors:
            tensors.append(Tensor("factors", rows * count * 4 + SLACK, "float"))
            home = Place(tiles.tile("factors", row.size * count * 4))
            main = Place(tensors[1], first * (count * 4))
            tiles.body.extend(load_rows(home, count * 4, main, row.size, count, 4))
            vectors.operation("vmul", sums, (sums, Grid(home, count * 4)), row.size, count)
        else:
            vectors.operation("vmuls", sums, (sums,), row.size, count, number(factor))
        vectors.operation("cast", grid, (sums,), row.size, count)
    at = (plane * rows + first) * (columns * PIXEL)
    tiles.body.extend(
        [*vectors.body, *store_rows(result, 0, Place(out, at), 1, row.size * count, 2)]
    )
    return tiles.program((*tensors, out), about)


def _most_rows(
    fold: str,
    rows: int,
    columns: int,
    width: int,
    window: Window,
    core: DaVinci,
    factors: bool,
    name: str,
) -> int:
    """Rows of results of a tile."""
    each = columns * PIXEL * (2 if fold == "max" else 6 + 4 * factors)
    room = core.ub - (choice_bytes(1) if fold == "max" else 0)
    for most in range(rows, 0, -1):
        if 2 * window.span(0, most) * width * PIXEL + most * each <= room:
            return most
    raise refuse(
        "plan-capacity",
        f"{name}: the {window.span(0)} rows of {width} pixels under a window are more than the "
        f"{core.ub} bytes of ub hold",
        help="smaller windows or images",
    )
