"""Pools as emitted C, against float64."""

from __future__ import annotations

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


def planes(seed: int, *shape: int) -> Halves:
    random = np.random.default_rng(seed)
    return random.normal(0, 3, (*shape, 16)).astype(np.float16)


def windows(
    x: Halves,
    lost: float,
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
) -> NDArray[np.float64]:
    """Of each tap what the windows see there, in float64; ``lost`` is what padding holds."""
    above, left, below, right = pads
    x = np.pad(x, [(0, 0), (above, below), (left, right), (0, 0)], constant_values=np.float16(lost))
    counts = [
        (extent - (size - 1) * dilation - 1) // stride + 1
        for extent, size, dilation, stride in zip(
            x.shape[1:3], kernel, dilations, strides, strict=True
        )
    ]
    return np.stack(
        [
            x[:, down * dilations[0] :: strides[0], right * dilations[1] :: strides[1]][
                :, : counts[0], : counts[1]
            ]
            for down in range(kernel[0])
            for right in range(kernel[1])
        ]
    ).astype(np.float64)


@pytest.mark.parametrize("case", but_fast(CASES, CASES[:5]))
def test_maxima(case: Case) -> None:
    """Padding, and what is no number, takes no part."""
    shape, of = case
    x = planes(1, *shape)
    x[np.random.default_rng(2).random(x.shape) < 0.2] = np.nan
    clean = np.where(np.isnan(x), np.float16(-np.inf), x)
    wanted = windows(clean, -np.inf, **of).max(0)
    program = pooled("max_pool", (1, 16 * shape[0], *shape[1:]), **of)
    for found, _ in results(program, {"a": x}, wanted.shape, kind=np.float16, name="c"):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("case", but_fast(CASES, CASES[:5]))
def test_averages(case: Case, counted: bool) -> None:
    """Windows count the elements of the image, or padding, too."""
    shape, of = case
    if "dilations" in of:
        pytest.skip("no average skips columns")
    x, pads = planes(1, *shape), of.get("pads", (0, 0, 0, 0))
    inside = pads if counted else (0, 0, 0, 0)
    counts = reference.pool_counts(
        *(shape[1:], of["kernel"], of.get("strides", (1, 1)), pads, (1, 1), inside)
    )
    wanted = windows(x, 0.0, **of).sum(0) / counts[:, :, None]
    program = pooled("average_pool", (1, 16 * shape[0], *shape[1:]), **of, counted=inside)
    for found, _ in results(program, {"a": x}, wanted.shape, kind=np.float16, name="c"):
        # Sums of floats, rounded once to half precision.
        assert (np.abs(found - wanted) <= np.abs(wanted) * 2.0**-11 + 1e-5).all()


def test_windows_that_ub_does_not_hold_are_refused() -> None:
    with pytest.raises(TilewrightError, match="plan-capacity"):
        pooled("max_pool", (1, 16, 200, 200), (150, 150))


def test_windows_that_see_padding_alone_are_refused() -> None:
    with pytest.raises(TilewrightError, match="lower-operation"):
        pooled("average_pool", (1, 16, 1, 6), (2, 2), pads=(3, 3, 3, 3), cores=8)
