"""Pools as emitted C, against NumPy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import Halves
from tests.targets.ascend.element_kernels import pooled
from tests.targets.ascend.kernels.rows_of_floats import results

from tilewright.errors import TilewrightError
from tilewright.numerics import reference

Case = tuple[tuple[int, int, int], dict[str, Any]]
"""Planes of 16 channels, rows and columns; windows."""

CASES: list[Case] = [
    ((1, 7, 9), {"kernel": (3, 2)}),
    ((4, 14, 14), {"kernel": (3, 3), "strides": (2, 2)}),
    ((2, 15, 17), {"kernel": (2, 3), "strides": (1, 2), "dilations": (2, 1)}),
    ((2, 13, 15), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((3, 5, 9), {"kernel": (3, 2), "strides": (1, 2), "pads": (2, 1, 2, 0)}),
    ((1, 1, 1), {"kernel": (1, 1)}),
    ((13, 28, 28), {"kernel": (2, 2), "strides": (2, 2)}),
    ((3, 5, 333), {"kernel": (5, 5), "strides": (1, 3)}),
    ((2, 114, 114), {"kernel": (3, 3), "strides": (2, 2)}),
    ((5, 112, 112), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 0, 0, 1)}),
    ((1, 300, 40), {"kernel": (5, 5), "pads": (2, 2, 2, 2)}),
]
AVERAGES = [case for case in CASES if "dilations" not in case[1]]


def images(seed: int, planes: int, *shape: int) -> Halves:
    """An image of so many planes [c][h][w]."""
    random = np.random.default_rng(seed)
    return random.normal(0, 3, (1, 16 * planes, *shape)).astype(np.float16)


def blocked(x: NDArray[Any]) -> NDArray[Any]:
    """The planes of an image, pixel by pixel."""
    return x.reshape(-1, 16, *x.shape[2:]).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("case", but_fast(CASES, CASES[:5]))
def test_maxima(case: Case) -> None:
    """Padding, and what is no number, takes no part."""
    shape, of = case
    x = images(1, *shape)
    x[np.random.default_rng(2).random(x.shape) < 0.2] = np.nan
    wanted = blocked(reference.max_pool2d(x, **of))
    program = pooled("max_pool", x.shape, **of)
    given = {"a": np.ascontiguousarray(blocked(x))}
    for found, _ in results(program, given, wanted.shape, kind=np.float16, name="c"):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("case", but_fast(AVERAGES, AVERAGES[:4]))
def test_averages(case: Case, counted: bool) -> None:
    """Windows count the elements of the image, or padding, too."""
    shape, of = case
    x = images(1, *shape)
    ones = np.ones_like(x, np.float32)
    counts = prod(of["kernel"]) if counted else reference.sum_pool2d(ones, **of)
    wanted = blocked(reference.sum_pool2d(x.astype(np.float32), **of) / counts)
    inside = of.get("pads", (0, 0, 0, 0)) if counted else (0, 0, 0, 0)
    program = pooled("average_pool", x.shape, **of, counted=inside)
    given = {"a": np.ascontiguousarray(blocked(x))}
    for found, _ in results(program, given, wanted.shape, kind=np.float16, name="c"):
        # Sums of floats, rounded once to half precision.
        assert (np.abs(found - wanted) <= np.abs(wanted) * 2.0**-11 + 1e-5).all()


def test_windows_that_ub_does_not_hold_are_refused() -> None:
    with pytest.raises(TilewrightError, match="plan-capacity"):
        pooled("max_pool", (1, 16, 200, 200), (150, 150))


def test_windows_that_see_padding_alone_are_refused() -> None:
    with pytest.raises(TilewrightError, match="lower-operation"):
        pooled("average_pool", (1, 16, 1, 6), (2, 2), pads=(3, 3, 3, 3), cores=8)
