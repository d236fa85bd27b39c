"""The allocator of offsets: no overlap, aligned, never under the bound, deterministic."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.memory import Allocation, Buffer, Problem, allocate, place


@st.composite
def buffers(draw: st.DrawFn) -> list[Buffer]:
    count = draw(st.integers(0, 24))
    found: list[Buffer] = []
    for index in range(count):
        first = draw(st.integers(0, 20))
        last = first + draw(st.integers(0, 8))
        found.append(Buffer(f"b{index}", draw(st.integers(0, 5000)), first, last))
    return found


def check(given_buffers: list[Buffer], found: Allocation, alignment: int) -> None:
    assert len(found.offsets) == len(given_buffers)
    placed = list(zip(given_buffers, found.offsets, strict=True))
    for index, (buffer, offset) in enumerate(placed):
        assert offset >= 0
        assert offset % alignment == 0
        assert offset + buffer.size <= found.peak
        for other, at in placed[index + 1 :]:
            if buffer.first <= other.last and other.first <= buffer.last:
                apart = offset + buffer.size <= at or at + other.size <= offset
                assert apart or 0 in (buffer.size, other.size), (buffer, offset, other, at)
    steps = range(64)
    live = [
        sum(-(-b.size // alignment) * alignment for b in given_buffers if b.first <= t <= b.last)
        for t in steps
    ]
    assert found.bound == max(live)
    assert found.peak >= found.bound
    if given_buffers:
        assert live[found.busiest] == found.bound


@settings(max_examples=200, deadline=None)
@given(buffers(), st.sampled_from([1, 16, 64]))
def test_any_buffers_are_placed_apart(given_buffers: list[Buffer], alignment: int) -> None:
    problem = Problem(tuple(given_buffers), alignment)
    found = allocate(problem)
    check(given_buffers, found, alignment)
    assert allocate(Problem(tuple(given_buffers), alignment)) == found


def test_chain_reaches_the_bound() -> None:
    """In a chain each step needs two neighbours, which alternate between the ends."""
    sizes = [640, 1280, 320, 960, 64, 2560, 128]
    chain = [Buffer(str(i), size, i, i + 1) for i, size in enumerate(sizes)]
    found = allocate(Problem(tuple(chain)))
    assert found.peak == found.bound == max(a + b for a, b in pairwise(sizes))


def test_search_improves_on_the_heuristics() -> None:
    """Without rounds the heuristics alone are at least as bad on every one of many problems."""
    generator = random.Random(5)
    better = 0
    for _ in range(60):
        problem = [
            Buffer(str(i), generator.randrange(1, 9) * 64, first, first + generator.randrange(6))
            for i, first in enumerate(generator.choices(range(16), k=20))
        ]
        given = Problem(tuple(problem))
        searched, plain = allocate(given), allocate(given, rounds=0)
        check(problem, searched, 64)
        assert searched.peak <= plain.peak
        better += searched.peak < plain.peak
    assert better > 0


@pytest.mark.parametrize("alignment", [1, 64])
def test_nothing_to_place(alignment: int) -> None:
    assert allocate(Problem((), alignment)).peak == 0


def test_buffers_with_addresses_stay_and_others_go_around_them() -> None:
    """A range reserved at all steps and one fixed for a while: both fits go around them."""
    fixed = (Buffer("reserved", 128, 0, 9, address=64), Buffer("fixed", 64, 0, 4, address=320))
    free = (Buffer("small", 64, 0, 9), Buffer("large", 128, 0, 4), Buffer("late", 192, 5, 9))
    problem = Problem((*fixed, *free))
    assert place(problem, range(5)) == [64, 320, 0, 192, 192]
    assert place(problem, [3, 2, 4], best_fit=True) == [64, 320, 0, 192, 192]
    found = allocate(problem)
    assert found.offsets[:2] == (64, 320)
    check(list(problem.buffers), found, 64)
    odd = Problem((Buffer("odd", 10, 0, 1, address=5), Buffer("b", 64, 0, 1)))
    assert allocate(odd).offsets == (5, 128)
    with pytest.raises(ValueError, match="reserved and other"):
        Problem((fixed[0], Buffer("other", 8, 3, 4, address=190)))


def test_reasons_why_buffers_do_not_fit() -> None:
    found = allocate(Problem((Buffer("a", 64, 0, 2), Buffer("b", 64, 2, 3)), capacity=100))
    assert found.misfit(128) is None and found.misfit(None) is None
    assert found.misfit(100) == "128 bytes are live at step 2, 100 are there"
    worse = replace(found, peak=192, optimal=False)
    assert worse.misfit(150) == "192 bytes are the best that was found, 150 are there"
