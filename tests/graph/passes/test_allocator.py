"""The allocator of offsets: no overlap, aligned, never under the bound, deterministic."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.graph.passes.allocator import Allocation, Buffer, allocate


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
    found = allocate(given_buffers, alignment=alignment)
    check(given_buffers, found, alignment)
    assert allocate(given_buffers, alignment=alignment) == found


def test_chain_reaches_the_bound() -> None:
    """In a chain each step needs two neighbours, which alternate between the ends."""
    sizes = [640, 1280, 320, 960, 64, 2560, 128]
    chain = [Buffer(str(i), size, i, i + 1) for i, size in enumerate(sizes)]
    found = allocate(chain)
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
        searched, plain = allocate(problem), allocate(problem, rounds=0)
        check(problem, searched, 64)
        assert searched.peak <= plain.peak
        better += searched.peak < plain.peak
    assert better > 0


@pytest.mark.parametrize("alignment", [1, 64])
def test_nothing_to_place(alignment: int) -> None:
    assert allocate([], alignment=alignment).peak == 0
