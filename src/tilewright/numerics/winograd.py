"""Winograd's minimal filtering: a 3x3 convolution as products of transformed tiles.

F(T x T, 3 x 3) computes a tile of T x T outputs from (T+2) x (T+2) inputs with (T+2)**2 products
for each pair of channels in place of 9 T**2 (Lavin and Gray, "Fast algorithms for convolutional
neural networks", CVPR 2016, sections 4.1 to 4.3):

    Y = A^T [ sum over input channels of (G g G^T) * (B^T d B) ] A

The points are 0, 1, -1, infinity for T = 2, and 2, -2 besides for T = 4. What is gained in
products is lost in digits: the transforms have entries up to 8 and sums that cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TAPS = 3
"""Extent of the window that the transforms are for."""


@dataclass(frozen=True)
class Transforms:
    """The matrices of one size of tile; ``inner`` = tile + 2."""

    inputs: Array
    """B^T, [inner, inner]."""
    weights: Array
    """G, [inner, 3]."""
    outputs: Array
    """A^T, [tile, inner]."""


TRANSFORMS: Mapping[int, Transforms] = {
    2: Transforms(
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64),
        np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float64),
        np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64),
    ),
    4: Transforms(
        np.array(
            [
                [4, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ],
            np.float64,
        ),
        np.array(
            [
                [1 / 4, 0, 0],
                [-1 / 6, -1 / 6, -1 / 6],
                [-1 / 6, 1 / 6, -1 / 6],
                [1 / 24, 1 / 12, 1 / 6],
                [1 / 24, -1 / 12, 1 / 6],
                [0, 0, 1],
            ],
            np.float64,
        ),
        np.array(
            [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
            np.float64,
        ),
    ),
}
"""By extent of the output tile."""


def transform_weights(w: Array, tile: int) -> Array:
    """Weights [co, ci, 3, 3] as [co, ci, tile+2, tile+2]: computed in float64, one rounding."""
    g = TRANSFORMS[tile].weights
    # A matrix product for each side: einsum would copy the weights about.
    wide = (w.reshape(-1, TAPS).astype(np.float64) @ g.T).reshape(*w.shape[:3], -1)
    return np.ascontiguousarray((g @ wide).astype(np.float32))


def conv2d(x: Array, u: Array, pads: Sequence[int], tile: int) -> Array:
    """Images [n, c, h, w] with transformed weights [co, c, tile+2, tile+2]; stride 1.

    Computes in float64 and rounds the result to float32. ``pads`` are top, left, bottom, right.
    """
    n, _, h, w = x.shape
    top, left, bottom, right = pads
    oh, ow = h + top + bottom - 2, w + left + right - 2
    rows, columns = -(-oh // tile), -(-ow // tile)
    inner, matrices = tile + 2, TRANSFORMS[tile]
    after = (rows * tile + 2 - h - top, columns * tile + 2 - w - left)
    source = np.pad(x, ((0, 0), (0, 0), (top, max(after[0], 0)), (left, max(after[1], 0))))
    planes = u.astype(np.float64).transpose(2, 3, 0, 1)
    result = np.empty((n, len(u), rows * tile, columns * tile), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(source, (inner, inner), (2, 3))
    for image in range(n):
        for row in range(rows):
            # [c, columns, inner, inner] of one row of tiles.
            d = windows[image, :, row * tile, : columns * tile : tile].astype(np.float64)
            v = matrices.inputs @ d @ matrices.inputs.T
            m = planes @ v.transpose(2, 3, 0, 1)
            y = matrices.outputs @ m.transpose(2, 3, 0, 1) @ matrices.outputs.T
            y = y.transpose(0, 2, 1, 3).reshape(len(u), tile, columns * tile)
            result[image, :, row * tile : (row + 1) * tile] = y
    return np.ascontiguousarray(result[:, :, :oh, :ow])
