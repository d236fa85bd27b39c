"""Where axes end that a reshape joins or splits, beside the elements themselves."""

import itertools

import numpy as np
import pytest

from tilewright.graph.joined_axes import Ending, Ends, reshaped_ends, sizes_in
from tilewright.ir.types import Array

SIZES = {"b": 3, "n": 5}
MOST = {"b": 4, "n": 6}


def before_ends(shape: tuple[int, ...], ends: Ends) -> Array:
    """True at the elements before all ends."""
    kept = np.ones(shape, bool)
    for axis, ending in ends.items():
        parts = ((shape[axis], ending),) if isinstance(ending, str) else ending
        along = np.ones([extent for extent, _ in parts], bool)
        for place, (extent, name) in enumerate(parts):
            if name:
                index = [extent if n == place else 1 for n in range(len(parts))]
                along &= (np.arange(extent) < SIZES[name]).reshape(index)
        kept &= along.reshape([-1 if n == axis else 1 for n in range(len(shape))])
    return kept


SHAPES = [
    (4, 6, 16),
    (24, 16),
    (4, 96),
    (4, 6, 2, 8),
    (1, 4, 6, 16),
    (384,),
    (4, 3, 2, 16),
    (2, 2, 6, 16),
    (8, 3, 16),
    (24, 1, 4, 4),
]


@pytest.mark.parametrize("ends", [{0: "b"}, {1: "n"}, {0: "b", 1: "n"}, {}])
def test_elements_before_the_ends_are_the_same(ends: dict[int, Ending]) -> None:
    """Through each shape and to another: what is followed is where the elements are."""
    whole = before_ends(SHAPES[0], ends)
    followed = 0
    for first, second in itertools.product(SHAPES, SHAPES):
        between = reshaped_ends(SHAPES[0], first, ends)
        after = None if between is None else reshaped_ends(first, second, between)
        if between is None or after is None:
            continue
        followed += 1
        np.testing.assert_array_equal(before_ends(second, after), whole.reshape(second))
        assert set[str]().union(*map(sizes_in, after.values())) == set(map(str, ends.values()))
    assert followed >= 36


def test_an_axis_that_ends_is_not_cut() -> None:
    assert reshaped_ends((6, 16), (3, 32), {0: "n"}) is None
    assert reshaped_ends((6, 16), (2, 3, 16), {0: "n"}) is None
    assert reshaped_ends((4, 6), (8, 3), {1: "n"}) is None
    assert reshaped_ends((4, 6), (24,), {0: "b", 1: "n"}) == {0: ((4, "b"), (6, "n"))}
