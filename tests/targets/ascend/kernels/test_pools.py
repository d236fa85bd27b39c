"""Pools as emitted C, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import Halves
from tests.targets.ascend.kernels.rows_of_floats import results

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.kernels.pools import Window, pool
from tilewright.targets.ascend.kernels.shares import divided
from tilewright.targets.ascend.machine import ASCEND_910

CASES = [
    ((1, 7, 9), Window((3, 2))),
    ((4, 14, 14), Window((3, 3), (2, 2))),
    ((2, 15, 17), Window((2, 3), (1, 2), (2, 1))),
    ((1, 1, 1), Window((1, 1))),
    ((13, 28, 28), Window((2, 2), (2, 2))),
    ((3, 5, 333), Window((5, 5), (1, 3))),
    ((2, 114, 114), Window((3, 3), (2, 2))),
]


def planes(seed: int, *shape: int) -> Halves:
    random = np.random.default_rng(seed)
    return random.normal(0, 3, (*shape, 16)).astype(np.float16)


def windows(x: Halves, window: Window) -> NDArray[np.float64]:
    """Of each tap what the windows see there, in float64."""
    rows, columns = (window.results(axis, x.shape[axis + 1]) for axis in (0, 1))
    return np.stack(
        [
            x[:, down :: window.strides[0], right :: window.strides[1]][:, :rows, :columns]
            for down, right in window.taps
        ]
    ).astype(np.float64)


@pytest.mark.parametrize("case", but_fast(CASES, CASES[:4]))
def test_maxima(case: tuple[tuple[int, int, int], Window]) -> None:
    shape, window = case
    x = planes(1, *shape)
    wanted = windows(x, window).max(0)
    program = pool("max", *shape, window, ASCEND_910)
    for found, _ in results(program, {"x": x}, wanted.shape, kind=np.float16):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("case", but_fast(CASES, CASES[:4]))
def test_averages(case: tuple[tuple[int, int, int], Window]) -> None:
    shape, window = case
    x = planes(1, *shape)
    wanted = windows(x, window).mean(0)
    factor = 1 / len(window.taps)
    program = pool("add", *shape, window, ASCEND_910, factor=factor)
    for found, _ in results(program, {"x": x}, wanted.shape, kind=np.float16):
        # Sums of floats, rounded once to half precision.
        assert (np.abs(found - wanted) <= np.abs(wanted) * 2.0**-11 + 1e-5).all()


@pytest.mark.parametrize("pad", [0, 1])
def test_windows_of_several_counts(pad: int) -> None:
    x = planes(1, 2, 6, 6)
    window = Window((3, 3), (2, 2))
    padded = np.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    sums = windows(padded, window).sum(0)
    factors = np.array([[1, 0.5, 0.7], [0.25, 0.2, 0.3], [0.9, 0.4, 0.6]], np.float32)
    factors = factors[: sums.shape[1], : sums.shape[2]]
    wanted = sums * factors[:, :, None]
    program = pool("add", 2, 6, 6, window, ASCEND_910, factors=True, pads=(pad,) * 4)
    given = {"x": x, "factors": np.repeat(factors.reshape(-1, 1), 16, 1)}
    for found, _ in results(program, given, wanted.shape, kind=np.float16):
        assert (np.abs(found - wanted) <= np.abs(wanted) * 2.0**-11 + 1e-5).all()


PADDED = [
    ((2, 13, 15), Window((3, 3), (2, 2)), (1, 1, 1, 1)),
    ((3, 5, 9), Window((3, 2), (1, 2), (1, 2)), (0, 1, 2, 0)),
    ((5, 112, 112), Window((3, 3), (2, 2)), (1, 0, 0, 1)),
    ((1, 300, 40), Window((5, 5)), (2, 2, 2, 2)),
]


@pytest.mark.parametrize("fold", ["max", "add"])
@pytest.mark.parametrize("case", but_fast(PADDED, PADDED[:2]))
def test_padding(
    case: tuple[tuple[int, int, int], Window, tuple[int, int, int, int]], fold: str
) -> None:
    """Padding, and what is no number, takes no part in maxima; sums have zeros there."""
    shape, window, (above, left, below, right) = case
    x = planes(1, *shape)
    if fold == "max":
        x[np.random.default_rng(2).random(x.shape) < 0.2] = np.nan
    clean = np.where(np.isnan(x), np.float16(-np.inf), x)
    lost = -np.inf if fold == "max" else 0
    padded = np.pad(
        clean, [(0, 0), (above, below), (left, right), (0, 0)], constant_values=np.float16(lost)
    )
    taps = windows(padded, window)
    wanted = taps.max(0) if fold == "max" else taps.sum(0) / 8
    pads = above, left, below, right
    program = pool(fold, *shape, window, ASCEND_910, factor=0.125, pads=pads)
    for found, _ in results(program, {"x": x}, wanted.shape, kind=np.float16):
        assert (found == wanted if fold == "max" else np.isclose(found, wanted, 2e-3, 1e-4)).all()


def test_windows_that_ub_does_not_hold_are_refused() -> None:
    with pytest.raises(TilewrightError, match="plan-capacity"):
        pool("max", 1, 200, 200, Window((150, 150)), ASCEND_910)


def test_tiles_that_see_padding_alone_are_refused() -> None:
    """At rows of one pixel the first windows lie above the image."""
    lines = divided("h", 11, 1)
    with pytest.raises(TilewrightError, match="lower-operation"):
        pool("add", 1, 6, 6, Window((2, 2)), ASCEND_910, pads=(3, 3, 3, 3), lines=lines)
