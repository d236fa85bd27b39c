"""Softmax and layer normalisation as emitted C, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import Halves
from tests.targets.ascend.element_kernels import normal
from tests.targets.ascend.kernels.rows_of_floats import floats, packed, results, unpacked

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910, DaVinci

EPSILON = 2.0**-23

SHAPES = [(rows, columns) for rows in (1, 15, 63) for columns in (1, 17, 63, 100, 333)] + [
    (2, 4097),
    (1, 12_000),
    (300, 64),
    (1000, 8),
]
FAST = [(1, 1), (15, 17), (63, 100), (2, 4097)]

Doubles = NDArray[np.float64]


def softmax_of(x: NDArray[np.floating], axis: int) -> Doubles:
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def bound(x: NDArray[np.float32], axis: int) -> Doubles:
    """Relative: the difference is rounded once, which the exponential multiplies; then come the
    exponential itself, a sum (64 side by side, then 6 halves), the reciprocal and a product."""
    largest = np.abs(x.astype(np.float64) - x.max(axis, keepdims=True))
    return (largest / 2 + x.shape[axis] / 64 + 12) * EPSILON


@pytest.mark.parametrize("shape", but_fast(SHAPES, FAST))
def test_softmax(shape: tuple[int, int]) -> None:
    x = floats(sum(shape), *shape, scale=6)
    wanted = softmax_of(x, 1)
    for found, _ in results(normal(shape), {"x": x}, shape):
        assert (np.abs(found - wanted) <= bound(x, 1) * wanted).all()


ACROSS = [(1, 1, 1), (3, 5, 63), (2, 100, 17), (1, 333, 1), (7, 4, 8), (1, 15, 4096), (2, 333, 64)]


@pytest.mark.parametrize("shape", but_fast(ACROSS, ACROSS[:3]))
def test_softmax_of_columns(shape: tuple[int, int, int]) -> None:
    x = floats(sum(shape), *shape, scale=6)
    wanted = softmax_of(x, 1)
    most = (np.abs(x - x.max(1, keepdims=True)) / 2 + shape[1] + 12) * EPSILON
    for found, _ in results(normal(shape, axis=1), {"x": x}, shape):
        assert (np.abs(found - wanted) <= most * wanted).all()


def test_softmax_of_large_and_infinite_numbers() -> None:
    x = floats(5, 4, 100, scale=30) + np.float32(3e4)
    x[1, 3] = -np.inf
    x[2, :] = 88.0
    wanted = softmax_of(x, 1)
    for found, _ in results(normal((4, 100)), {"x": x}, x.shape):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-37)
        assert found[1, 3] == 0


@pytest.mark.parametrize("core", [ASCEND_910, ASCEND_310])
@pytest.mark.parametrize(
    ("of", "lines"),
    [(Norm(1e-12), ["scale", "shift"]), (Norm(1e-5), []), (Norm(1e-6, False), ["scale"])],
)
@pytest.mark.parametrize("shape", but_fast(SHAPES[1::2], [(63, 17)]))
def test_layer_norm(shape: tuple[int, int], of: Norm, lines: list[str], core: DaVinci) -> None:
    columns = shape[1]
    x = floats(columns, *shape, scale=2, mean=1)
    given = {"x": x}
    scale, shift = floats(1, columns, scale=1), floats(2, columns, scale=1)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True) if of.centred else wide
    # The mean's error, and what the difference is rounded by, are of the elements' size.
    size = np.abs(wide).max(1, keepdims=True)
    root = np.sqrt((centred**2).mean(1, keepdims=True) + of.epsilon)
    wanted = centred / root
    most = (columns / 64 + 16) * EPSILON * (size / root + np.abs(wanted) + 1)
    if "scale" in lines:
        given["scale"] = scale
        wanted, most = wanted * scale, most * np.abs(scale) + EPSILON
    if "shift" in lines:
        given["shift"] = shift
        wanted = wanted + shift
        most = most + EPSILON * (np.abs(wanted) + np.abs(shift))
    if columns == 1:
        # All that is left of one number is how far its mean is rounded, over the root of epsilon.
        most = most + size * EPSILON / root * 2
    for found, _ in results(normal(shape, core, of, lines), given, shape, core):
        assert (np.abs(found - wanted) <= most).all()


HALVES = [(1, 1, 1), (2, 33, 10), (3, 3, 63), (2, 17, 100), (12, 128, 128), (1, 5, 4097)]


def of_halves(x: Halves) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Softmax and layer normalisation of rows."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    root = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return softmax_of(x, x.ndim - 1), centred / root


@pytest.mark.few(3)
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("shape", but_fast(HALVES, HALVES[:3]))
def test_halves_and_matrices_in_nz(shape: tuple[int, int, int], blocks: bool) -> None:
    """Computed on as floats, rounded once; whatever pads blocks."""
    x = np.random.default_rng(1).normal(0, 3, shape).astype(np.float16)
    given = {"x": packed(x) if blocks else x}
    size = given["x"].shape
    programs = [normal(shape, norm=of, element="half", blocks=blocks) for of in (None, Norm())]
    for program, wanted in zip(programs, of_halves(x), strict=True):
        for out, _ in results(program, given, size, kind=np.float16):
            found = unpacked(out, shape) if blocks else out
            assert (np.abs(found - wanted) <= np.abs(wanted) * 2.0**-11 + 2e-5).all()


def test_softmax_of_columns_of_halves() -> None:
    x = np.random.default_rng(1).normal(0, 3, (2, 33, 40)).astype(np.float16)
    program = normal((2, 33, 40), axis=1, element="half")
    for found, _ in results(program, {"x": x}, x.shape, kind=np.float16):
        assert (np.abs(found - softmax_of(x, 1)) <= softmax_of(x, 1) * 2.0**-11 + 1e-5).all()


def test_rows_that_ub_does_not_hold_are_refused() -> None:
    with pytest.raises(TilewrightError, match="plan-capacity"):
        normal((2, 40_000))
    with pytest.raises(TilewrightError, match="plan-capacity"):
        normal((2, 40_000, 10), axis=1)
