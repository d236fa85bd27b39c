"""Winograd's matrices are exactly those of minimal filtering, and what points cost in digits."""

from fractions import Fraction

import numpy as np
import pytest

from tilewright.numerics.winograd import POINTS, SCALES, TRANSFORMS


def fractions(matrix: np.ndarray) -> list[list[Fraction]]:
    """The matrix's elements, which float64 and float32 hold exactly."""
    assert (matrix == matrix.astype(np.float32)).all()
    return [[Fraction(float(value)) for value in row] for row in matrix]


@pytest.mark.parametrize("sizes", sorted(TRANSFORMS))
def test_every_output_is_the_sum_of_its_taps(sizes: tuple[int, int]) -> None:
    """In fractions: the coefficient of input e and tap r in output t is 1 where e = t + r, or 0."""
    matrices = TRANSFORMS[sizes]
    inputs, outputs = fractions(matrices.inputs), fractions(matrices.outputs)
    points = POINTS[matrices.inner]
    factors = [Fraction(scale).limit_denominator(1000) for scale in SCALES[matrices.inner]]
    assert [float(factor) for factor in factors] == list(SCALES[matrices.inner])
    assert min(factors) > 0
    taps = matrices.taps
    powers = [
        [point**r if point is not None else Fraction(r == taps - 1) for r in range(taps)]
        for point in points
    ]
    for t in range(matrices.tile):
        for r in range(taps):
            for e in range(matrices.inner):
                terms = zip(outputs[t], factors, powers, inputs, strict=True)
                found = sum(a * f * row[r] * b[e] for a, f, row, b in terms)
                assert found == (e == t + r)


@pytest.mark.parametrize(("sizes", "least", "most"), [((4, 3), 2.0, 8.0), ((6, 3), 5.0, 20.0)])
def test_larger_tiles_round_more_but_not_by_much(
    sizes: tuple[int, int], least: float, most: float
) -> None:
    """Root mean square of errors in float32, in those of tiles of 2 x 2: random data, 64 channels.

    Found: 4.4 times with tiles of 4 x 4, 11.9 with those of 6 x 6.
    """

    def error(tile: int) -> float:
        m = TRANSFORMS[tile, 3]
        random = np.random.default_rng(5)
        x = random.standard_normal((40, 64, m.inner, m.inner)).astype(np.float32)
        w = random.standard_normal((64, 3, 3)).astype(np.float32)
        found: list[np.ndarray] = []
        for kind in (np.float32, np.float64):
            b, a = m.inputs.astype(kind), m.outputs.astype(kind)
            u = (m.weights @ w.astype(np.float64) @ m.weights.T).astype(kind)
            v = b @ x.astype(kind) @ b.T
            sums = np.zeros_like(v[:, 0])
            for channel in range(x.shape[1]):
                sums += v[:, channel] * u[channel]
            found.append(a @ sums @ a.T)
        return float(np.sqrt(np.mean((found[0] - found[1]) ** 2)))

    assert least * error(2) < error(sizes[0]) < most * error(2)
