"""Reductions as emitted C: along rows and across them, in parts where UB does not hold them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.ascend.element_kernels import folded
from tests.targets.ascend.kernels.rows_of_floats import floats, results

from tilewright.targets.ascend.kernels.folds import FOLD_OF

EPSILON = 2.0**-23

ROWS = [
    *((rows, columns) for rows in (1, 17, 333) for columns in (1, 15, 63, 100, 4097)),
    *((17, 40_000), (1000, 8), (130, 64)),
]
FAST_ROWS = [(1, 1), (17, 63), (17, 40_000)]
ACROSS = [(1, 1, 1), (2, 33, 10), (3, 5, 63), (2, 100, 17), (1, 4097, 64), (2, 10, 5000)]
FOLDS = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}
OPERATIONS = {fold: name for name, fold in FOLD_OF.items() if name != "reduce_mean"}


@pytest.mark.few(4)
@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("shape", but_fast(ROWS, FAST_ROWS))
def test_along_rows(shape: tuple[int, int], fold: str) -> None:
    x = floats(shape[1], *shape)
    if fold == "mul":
        x = floats(shape[1], *shape, scale=0.01, mean=1)
    wide = x.astype(np.float64)
    wanted = FOLDS[fold](wide, axis=1)
    # Each of 64 sums takes its share of the elements, and 6 more steps join them.
    steps = shape[1] / 64 + 7
    size = np.abs(wide).sum(1) if fold == "add" else np.abs(wanted)
    most = steps * EPSILON * size if fold in ("add", "mul") else np.zeros(shape[0])
    if fold == "mul":
        most = shape[1] * EPSILON * size
    program = folded(OPERATIONS[fold], shape, [1])
    for found, _ in results(program, {"x": x}, shape[:1]):
        assert (np.abs(found - wanted) <= most).all()


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("shape", but_fast(ACROSS, ACROSS[:3]))
def test_across_rows(shape: tuple[int, int, int], fold: str) -> None:
    x = floats(shape[1], *shape)
    if fold == "mul":
        x = floats(shape[1], *shape, scale=0.01, mean=1)
    wide = x.astype(np.float64)
    wanted = FOLDS[fold](wide, axis=1)
    size = np.abs(wide).sum(1) if fold == "add" else np.abs(wanted)
    most = shape[1] * EPSILON * size if fold in ("add", "mul") else np.zeros(size.shape)
    program = folded(OPERATIONS[fold], shape, [1])
    for found, _ in results(program, {"x": x}, (shape[0], shape[2])):
        assert (np.abs(found - wanted) <= most).all()


def test_means() -> None:
    x = floats(3, 20, 100, mean=5)
    wanted = x.astype(np.float64).mean(1)
    for found, _ in results(folded("reduce_mean", (20, 100), [1]), {"x": x}, (20,)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    wanted = x.astype(np.float64).mean(0)
    program = folded("reduce_mean", (20, 100), [0])
    for found, _ in results(program, {"x": x}, (100,)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_what_is_no_number_stays_that() -> None:
    x = floats(4, 9, 100)
    x[3, 99] = np.nan
    x[4, 0] = np.inf
    for fold in ("max", "min"):
        wanted = FOLDS[fold](x, axis=1)
        for found, _ in results(folded(OPERATIONS[fold], x.shape, [1]), {"x": x}, (9,)):
            np.testing.assert_array_equal(found, wanted)


def test_halves() -> None:
    """Folded as floats, rounded once."""
    x = np.random.default_rng(1).normal(0, 3, (33, 1000)).astype(np.float16)
    wide = x.astype(np.float64)
    for program, wanted in (
        (folded("reduce_mean", (33, 1000), [1], element="half"), wide.mean(1)),
        (folded("reduce_max", (33, 1000), [0], element="half"), wide.max(0)),
        (folded("reduce_sum", (33, 100, 10), [1], element="half"), None),
    ):
        total = wide.reshape(33, 100, 10).sum(1) if wanted is None else wanted
        for found, _ in results(program, {"x": x}, total.shape, kind=np.float16):
            assert (np.abs(found - total) <= np.abs(total) * 2.0**-11 + 1e-4).all()


SEVERAL = [
    ((3, 4, 5, 6), [0, 2]),
    ((3, 4, 5, 64), [1, 3]),
    ((2, 3, 2, 3, 2, 40), [0, 2, 4]),
    ((2, 3, 2, 3, 300), [0, 2, 4]),
    ((7, 1, 9), [0, 1, 2]),
    ((6, 1, 5), [1]),
]


@pytest.mark.parametrize("case", but_fast(SEVERAL, SEVERAL[:2]))
def test_several_axes(case: tuple[tuple[int, ...], list[int]]) -> None:
    """One kernel reduces all of them; what is no number takes no part if so said."""
    shape, axes = case
    x = np.random.default_rng(1).normal(0, 3, shape).astype(np.float16)
    x[np.random.default_rng(2).random(shape) < 0.05] = np.nan
    wanted = np.where(np.isnan(x), -np.inf, x).max(tuple(axes))
    program = folded("reduce_max", shape, axes, element="half", skips=True)
    for found, _ in results(program, {"x": x}, wanted.shape, kind=np.float16):
        np.testing.assert_array_equal(found, wanted)
