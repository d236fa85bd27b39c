"""Winograd's minimal filtering: a convolution as products of transformed tiles.

F(T x T, R x R) computes a tile of T x T outputs of an R x R window from E x E inputs, E = T+R-1,
with E**2 products for each pair of channels in place of R**2 T**2 (Lavin and Gray, "Fast
algorithms for convolutional neural networks", CVPR 2016, sections 4.1 to 4.3):

    Y = A^T [ sum over input channels of (G g G^T) * (B^T d B) ] A

G and A^T evaluate polynomials at E points: 0, 1, -1, infinity for E = 4, 2 and -2 besides for
E = 6, 1/2 and -1/2 as well for E = 8. Rows of G have a factor that could stand in B^T as well; B^T
depends on the points alone, so F(4x4, 3x3) and F(2x2, 5x5) share it. All matrices follow from the
points; A^T and B^T are exact in float32. What is gained in products is lost in digits: the
transforms have entries up to 32 and sums that cancel. Of a dozen sets of eight points (Barabasz et
al., "Error analysis and improving the accuracy of Winograd convolution for deep neural networks",
ACM TOMS 46, 2020) this one has the least error in the mean on random data of 64 and 512 channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tilewright.memory.alignment import ceil_div
from tilewright.numerics import reference
from tilewright.numerics.arrays import Array

_HALF = Fraction(1, 2)

POINTS: Mapping[int, tuple[Fraction | None, ...]] = {
    4: (*map(Fraction, (0, 1, -1)), None),
    6: (*map(Fraction, (0, 1, -1, 2, -2)), None),
    8: (*map(Fraction, (0, 1, -1, 2, -2, _HALF, -_HALF)), None),
}
"""Points by E at which the polynomials are evaluated; None is infinity."""


def _factored(inner: int) -> tuple[list[float], Array]:
    """The factors of G's rows, which are positive, and B^T, [inner, inner]: from the points.

    The row of a point p is the product of (x - q) over all other finite points q, by rising powers
    of x; its factor is the inverse of what that is at p, but for the sign, which the row takes.
    """
    finite = [point for point in POINTS[inner] if point is not None]
    factors: list[float] = []
    rows: list[list[float]] = []
    for point in POINTS[inner]:
        others = [other for other in finite if other != point]
        row, at = [Fraction(1)], Fraction(1)
        for other in others:
            row = [low - other * high for low, high in zip([0, *row], [*row, 0], strict=True)]
            at *= point - other if point is not None else 1
        sign = -1 if at < 0 else 1
        factors.append(float(sign / at))
        rows.append([float(sign * value) for value in row] + [0.0] * (inner - len(row)))
    return factors, np.array(rows)


SCALES: Mapping[int, tuple[float, ...]] = {inner: tuple(_factored(inner)[0]) for inner in POINTS}
"""Factors of G's rows, by E."""


@dataclass(frozen=True)
class Transforms:
    """The matrices of one extent of tile and window; ``inner`` = tile + taps - 1."""

    tile: int
    taps: int
    inputs: Array
    """The matrix B^T that transforms tiles of inputs, [inner, inner]."""
    weights: Array
    """The matrix G that transforms windows of weights, [inner, taps]."""
    outputs: Array
    """The matrix A^T that transforms products to outputs, [tile, inner]."""

    @property
    def inner(self) -> int:
        """Inputs of a tile along one axis."""
        return self.tile + self.taps - 1


def _powers(inner: int, count: int) -> Array:
    """[inner, count]: the powers of every point; at infinity the last one counts alone."""
    return np.array(
        [
            [float(p**k) if p is not None else float(k == count - 1) for k in range(count)]
            for p in POINTS[inner]
        ]
    )


def _transforms(tile: int, taps: int) -> Transforms:
    inner = tile + taps - 1
    weights = np.array(SCALES[inner])[:, None] * _powers(inner, taps)
    outputs = np.ascontiguousarray(_powers(inner, tile).T)
    return Transforms(tile, taps, _factored(inner)[1], weights, outputs)


TRANSFORMS: Mapping[tuple[int, int], Transforms] = {
    sizes: _transforms(*sizes) for sizes in ((2, 3), (4, 3), (6, 3), (2, 5))
}
"""Transforms by extents of the output tile and of the window."""


def plain_weights(tile: int, taps: int) -> Array:
    """[taps, inner]: L with L G = 1, so that weights are L (G g G^T) L^T.

    From as many points as there are taps, 0 and infinity among them: zeros stay zeros.
    """
    g = TRANSFORMS[tile, taps].weights
    chosen = [*range(taps - 1), len(g) - 1]
    result = np.zeros((taps, len(g)))
    result[:, chosen] = np.linalg.inv(g[chosen])
    return np.where(np.abs(result) < 1e-9, 0.0, result)


def transform_weights(w: Array, tile: int) -> Array:
    """Weights [co, ci, taps, taps] as [co, ci, inner, inner]: in float64, one rounding."""
    return np.ascontiguousarray(_transformed(w, tile).astype(np.float32))


def _transformed(w: Array, tile: int) -> Array:
    taps = w.shape[3]
    g = TRANSFORMS[tile, taps].weights
    # A matrix product for each side: einsum would copy the weights about.
    wide = (w.reshape(-1, taps).astype(np.float64) @ g.T).reshape(*w.shape[:3], -1)
    return g @ wide


def transform_inputs(x: Array, pads: Sequence[int], tile: int, taps: int = 3) -> Array:
    """Tiles of images [n, c, h, w] as [inner * inner, c, n, rows, columns]: B^T d B.

    In float64, one rounding. ``pads`` are top, left, bottom, right of the convolution.
    """
    m = TRANSFORMS[tile, taps]
    n, c = x.shape[:2]
    windows, (rows, columns), _ = _windows(x, pads, m)
    result = np.empty((m.inner, m.inner, c, n, rows, columns), np.float32)
    for image in range(n):
        d = windows[image, :, : rows * tile : tile, : columns * tile : tile].astype(np.float64)
        result[:, :, :, image] = (m.inputs @ d @ m.inputs.T).transpose(3, 4, 0, 1, 2)
    return result.reshape(m.inner**2, c, n, rows, columns)


def _windows(
    x: Array, pads: Sequence[int], m: Transforms
) -> tuple[Array, tuple[int, int], tuple[int, int]]:
    """All windows of inputs [n, c, y, x, inner, inner], those of tiles ``tile`` apart; the rows and
    columns of tiles, and those of the result."""
    top, left, bottom, right = pads
    height, width = x.shape[2] + top + bottom, x.shape[3] + left + right
    oh, ow = height - m.taps + 1, width - m.taps + 1
    rows, columns = ceil_div(oh, m.tile), ceil_div(ow, m.tile)
    below, beyond = (rows * m.tile - oh + bottom, columns * m.tile - ow + right)
    room = ((0, 0), (0, 0), (top, max(below, 0)), (left, max(beyond, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, room), (m.inner, m.inner), (2, 3))
    return windows, (rows, columns), (oh, ow)


def transform_outputs(products: Array, extents: Sequence[int], tile: int, taps: int = 3) -> Array:
    """Images [n, c, *extents] of products [inner * inner, c, n, rows, columns]: A^T m A.

    In float64, one rounding.
    """
    m = TRANSFORMS[tile, taps]
    _, c, n, rows, columns = products.shape
    result = np.empty((n, c, rows * tile, columns * tile), np.float32)
    for image in range(n):
        tiles_of_image = products[:, :, image].reshape(m.inner, m.inner, c, rows, columns)
        y = m.outputs @ tiles_of_image.transpose(2, 3, 4, 0, 1).astype(np.float64) @ m.outputs.T
        result[image] = y.transpose(0, 1, 3, 2, 4).reshape(c, rows * tile, columns * tile)
    return np.ascontiguousarray(result[:, :, : extents[0], : extents[1]])


def conv2d(
    x: Array, u: Array, pads: Sequence[int], tile: int, taps: int = 3, group: int = 1
) -> Array:
    """Images [n, c, h, w] with weights [co, c/group, inner, inner] or as they were; stride 1.

    Computes in float64 and rounds the result to float32. ``pads`` are top, left, bottom, right.
    Where that is not finite, which one input makes of all outputs of its tile, it is computed
    directly.
    """
    matrices = TRANSFORMS[tile, taps]
    plain = u.shape[2] == taps
    planes = _transformed(u, tile) if plain else u.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        parts = [
            _conv2d(images, part.transpose(2, 3, 0, 1), pads, matrices)
            for images, part in zip(np.split(x, group, 1), np.split(planes, group), strict=True)
        ]
        result = np.ascontiguousarray(np.concatenate(parts, 1))
        if not np.isfinite(result).all():
            lift = plain_weights(tile, taps)
            w = u if plain else (lift @ planes @ lift.T).astype(np.float32)
            direct = reference.conv2d(x, w, pads=pads, group=group)
            result = np.where(np.isfinite(result), result, direct)
    return result


def _conv2d(x: Array, planes: Array, pads: Sequence[int], matrices: Transforms) -> Array:
    """Without groups; ``planes`` are weights as [inner, inner, co, c]."""
    n, tile, channels = len(x), matrices.tile, planes.shape[2]
    windows, (rows, columns), (oh, ow) = _windows(x, pads, matrices)
    result = np.empty((n, channels, rows * tile, columns * tile), np.float32)
    for image in range(n):
        for row in range(rows):
            # [c, columns, inner, inner] of one row of tiles.
            d = windows[image, :, row * tile, : columns * tile : tile].astype(np.float64)
            v = matrices.inputs @ d @ matrices.inputs.T
            m = planes @ v.transpose(2, 3, 0, 1)
            y = matrices.outputs @ m.transpose(2, 3, 0, 1) @ matrices.outputs.T
            y = y.transpose(0, 2, 1, 3).reshape(channels, tile, columns * tile)
            result[image, :, row * tile : (row + 1) * tile] = y
    return result[:, :, :oh, :ow]
