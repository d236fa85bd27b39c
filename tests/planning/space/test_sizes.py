"""The sizes of tiles: as few as are enough, and evened where that costs nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning import planning_kernels as kernels
from tilewright.planning.space.sizes import candidate_sizes
from tilewright.planning.space.tilings import build_space
from tilewright.targets.shidiannao.machine import SMALL
from tilewright.targets.shidiannao.machine import machine as shidiannao


def test_sizes_are_even_shares() -> None:
    assert candidate_sizes(10) == [10, 5, 4, 3, 2, 1]
    assert candidate_sizes(100, 16) == [100, 64, 48, 32, 16]
    assert candidate_sizes(12, 16) == [12]
    assert candidate_sizes(12, 16, small=True) == [12, 6, 4, 3, 2, 1]
    assert candidate_sizes(128, 16, small=True)[4:7] == [16, 15, 13]
    assert candidate_sizes(100, 16, limit=40) == [32, 16]
    assert candidate_sizes(100, 16, limit=8) == [8]
    assert candidate_sizes(1) == [1]


def test_tiles_under_windows_are_evened_where_that_computes_as_little() -> None:
    assert candidate_sizes(54, 16) == [54, 32, 16]
    assert candidate_sizes(54, 16, even=True) == [54, 27, 14]
    assert candidate_sizes(100, 16, even=True) == [100, 64, 48, 32, 15]
    machine = shidiannao(SMALL)
    for kernel, sizes in (
        (kernels.conv(3, 96, 54, 11), {27, 14}),
        (kernels.conv(3, 96, 54, 1), {32, 16}),
    ):
        space = build_space(kernel, machine, machine.primitive("conv"))
        assert set(space.size("oh")) <= {54} | sizes
        assert set(space.size("co")) >= {1, 2, 3}


@given(extent=st.integers(1, 300), granule=st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_evened_sizes_compute_no_more(extent: int, granule: int) -> None:
    plain = candidate_sizes(extent, granule)
    even = candidate_sizes(extent, granule, even=True)
    assert len(even) == len(plain)
    for one, other in zip(plain, even, strict=True):
        trips = -(-extent // one)
        assert other <= one and -(-extent // other) == trips

        def granules(size: int, trips: int = trips) -> int:
            last = extent - (trips - 1) * size
            return (trips - 1) * -(-size // granule) + -(-last // granule)

        assert granules(other) <= granules(one)


@given(extent=st.integers(1, 300), size=st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_any_size_has_one_that_needs_as_many_tiles_and_is_no_larger(extent: int, size: int) -> None:
    size = min(size, extent)
    trips = -(-extent // size)
    assert any(s <= size and -(-extent // s) == trips for s in candidate_sizes(extent))
