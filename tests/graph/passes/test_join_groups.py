"""Groups of whole blocks: the same results, with zeros in the weights."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.passes.join_groups import spread
from tilewright.numerics import reference


@pytest.mark.parametrize(("channels", "results", "group", "count"), [
    (12, 20, 4, 2), (12, 20, 4, 4), (34, 17, 17, 17), (64, 32, 8, 4),
])  # fmt: skip
def test_spread_weights_mean_the_same(channels: int, results: int, group: int, count: int) -> None:
    random = np.random.default_rng(group)
    x = random.integers(-5, 5, (2, channels, 6, 7)).astype(np.float32)
    w = random.integers(-5, 5, (results, channels // group, 3, 3)).astype(np.float32)
    wide = spread(w, group, count)
    assert wide.shape == (results, channels // group * count, 3, 3)
    assert np.count_nonzero(wide) == np.count_nonzero(w)
    window = (1, 1), (1, 1, 1, 1), (1, 1)
    expected = reference.conv2d(x, w, *window, group)
    np.testing.assert_array_equal(reference.conv2d(x, wide, *window, group // count), expected)
