"""The sizes of tiles: as few as are enough."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.planning.space.sizes import candidate_sizes


def test_sizes_are_even_shares() -> None:
    assert candidate_sizes(10) == [10, 5, 4, 3, 2, 1]
    assert candidate_sizes(100, 16) == [100, 64, 48, 32, 16]
    assert candidate_sizes(12, 16) == [12]
    assert candidate_sizes(12, 16, small=True) == [12, 6, 4, 3, 2, 1]
    assert candidate_sizes(128, 16, small=True)[4:7] == [16, 15, 13]
    assert candidate_sizes(100, 16, limit=40) == [32, 16]
    assert candidate_sizes(100, 16, limit=8) == [8]
    assert candidate_sizes(1) == [1]


@given(extent=st.integers(1, 300), size=st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_any_size_has_one_that_needs_as_many_tiles_and_is_no_larger(extent: int, size: int) -> None:
    size = min(size, extent)
    trips = -(-extent // size)
    assert any(s <= size and -(-extent // s) == trips for s in candidate_sizes(extent))
