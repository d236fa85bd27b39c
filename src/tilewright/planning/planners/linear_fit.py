"""swATOP's Eq. 2: the cycles of a product of tiles as a linear function of its sizes.

The paper prints ``alpha K + beta K M / (vecM 4) + gamma K M N / 4 + delta``, which divides by zero
where M is not vectorised, and whose letters are not those of its loops (innermost K, then M, then
N). Both forms are here; the planner takes the second:

    printed   alpha K + beta K M' + gamma K M' N + delta
    mended    alpha N + beta M' N + gamma M' N K + delta
    turned    the same + epsilon M' K

M' counts vectors. The last is for products whose vectors do not lie contiguous: the matrix of M and
K is turned in LDM first, which no term of the paper's grows with. Coefficients are those of least
squares of relative errors over what the primitive's own expression says, which on sunway is the
model of the two pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.machine import Primitive, parse_expression

Floats = NDArray[np.float64]
Form = Literal["printed", "mended", "turned"]

VECTOR = 4
"""Elements of a vector along M."""

ROWS = ("n", "g", "b0", "b1", "m", "oh", "ow")
"""Dims of which the elements of N are: all of the result but the output channels."""

DEEP = ("ci", "kh", "kw")


@dataclass(frozen=True)
class Fit:
    """Coefficients, and how far they are off."""

    form: Form
    coefficients: tuple[float, ...]
    """alpha, beta, gamma, delta, and epsilon if the form has it."""
    mean_error: float
    """Relative, over the sizes fitted to."""
    worst_error: float

    def cycles(self, tile: Mapping[str, Floats]) -> Floats:
        """Return the cycles of tiles, at least 1."""
        return np.maximum(_features(tile, self.form) @ np.array(self.coefficients), 1.0)


def _product(tile: Mapping[str, Floats], dims: tuple[str, ...]) -> Floats:
    size = np.ones(1)
    for dim in dims:
        size = size * np.asarray(tile.get(dim, 1), np.float64)
    return size


def _features(tile: Mapping[str, Floats], form: Form) -> Floats:
    n, k = _product(tile, ROWS), _product(tile, DEEP)
    m = np.ceil(_product(tile, ("co",)) / VECTOR)
    terms = (k, k * m, k * m * n) if form == "printed" else (n, m * n, m * n * k)
    more = (m * k,) if form == "turned" else ()
    columns = np.broadcast_arrays(*terms, np.ones(1), *more)
    return np.stack(columns, axis=-1)


def fit(primitive: Primitive, tile: Mapping[str, Floats], form: Form = "mended") -> Fit:
    """Fit Eq. 2 to a primitive over tiles of these sizes."""
    sizes = {dim: np.asarray(column, np.int64) for dim, column in tile.items()}
    cycles = np.asarray(parse_expression(primitive.cycles).evaluate(sizes), np.float64)
    return fit_to(cycles, tile, form)


def fit_to(cycles: Floats, tile: Mapping[str, Floats], form: Form = "mended") -> Fit:
    """Fit Eq. 2 to tiles of these sizes that take these cycles."""
    features = _features(tile, form)
    solution = _not_negative(features / cycles[:, None])
    errors = np.abs(features @ solution / cycles - 1)
    return Fit(form, tuple(map(float, solution)), float(errors.mean()), float(errors.max()))


def _not_negative(scaled: Floats) -> Floats:
    """Coefficients, none of them negative, with which the rows come nearest to ones."""
    kept = list(range(scaled.shape[1]))
    solution = np.zeros(scaled.shape[1])
    while kept:
        columns = scaled[:, kept]
        norms = np.maximum(np.abs(columns).max(axis=0), 1e-30)
        coefficients, *_ = np.linalg.lstsq(columns / norms, np.ones(len(columns)), rcond=None)
        coefficients = coefficients / norms
        if (coefficients >= 0).all():
            solution[kept] = coefficients
            break
        # Cycles of no tile fall as it grows; the most negative share goes first.
        del kept[int(np.argmin(coefficients * norms))]
    return solution
