"""DLIR's manager of on-chip memories: best fit, release, coalescing; and as a way to allocate."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.papers.dlir.passes import BestFit, FreeList, place_as_they_come
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.test_heuristics import buffers, check
from tests.targets.generic.kernel_cases import random_case
from tests.tile.interpreter import run
from tilewright.memory import Buffer, Problem, allocate
from tilewright.planning import Planner
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.tile.dialect import BufferOp
from tilewright.tile.lower import tile
from tilewright.tile.passes import Check


def test_the_piece_nearest_in_size_is_taken() -> None:
    memory = FreeList(1000)
    addresses = [memory.allocate(size) for size in (300, 100, 200, 50, 350)]
    assert addresses == [0, 300, 400, 600, 650]
    memory.release(0)
    memory.release(400)
    assert memory.free == ((0, 300), (400, 600))
    assert memory.allocate(150) == 400
    assert memory.allocate(160) == 0
    assert memory.allocate(400) is None


def test_nothing_cannot_be_allocated() -> None:
    memory = FreeList(600)
    with pytest.raises(ValueError, match="0 bytes cannot be allocated"):
        memory.allocate(0)
    assert memory.free == ((0, 600),) and memory.allocate(100) == 0


def test_neighbours_are_joined_on_both_sides() -> None:
    memory = FreeList(600)
    for size in (100, 200, 300):
        memory.allocate(size)
    memory.release(0)
    memory.release(300)
    assert memory.free == ((0, 100), (300, 600))
    memory.release(100)
    assert memory.free == ((0, 600),)
    assert memory.peak == 600
    with pytest.raises(KeyError):
        memory.release(0)


@settings(max_examples=100, deadline=None)
@given(buffers(), st.sampled_from([1, 16, 64]))
def test_any_buffers_are_placed_apart(given_buffers: list[Buffer], alignment: int) -> None:
    problem = Problem(tuple(given_buffers), alignment)
    offsets, least = place_as_they_come(problem), allocate(problem)
    assert problem.peak(offsets) >= least.bound
    check(
        given_buffers,
        replace(least, offsets=tuple(offsets), peak=problem.peak(offsets)),
        alignment,
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(0, 50)), max_size=60))
def test_what_is_taken_never_overlaps(steps: list[tuple[bool, int, int]]) -> None:
    memory, taken = FreeList(2000), list[tuple[int, int]]()
    for release, size, which in steps:
        if release and taken:
            address, _ = taken.pop(which % len(taken))
            memory.release(address)
            continue
        if size and (address := memory.allocate(size)) is not None:
            assert all(address + size <= a or a + n <= address for a, n in taken)
            assert address + size <= 2000
            taken.append((address, size))
        pieces = memory.free
        assert sum(end - start for start, end in pieces) == 2000 - sum(n for _, n in taken)
        assert all(a[1] < b[0] for a, b in pairwise(pieces))
    for address, _ in taken:
        memory.release(address)
    assert memory.free == ((0, 2000),)


@pytest.mark.parametrize("seed", range(6))
def test_programs_allocated_by_it_mean_the_same(seed: int) -> None:
    case = random_case(seed)
    program = tile(case.kernel, Planner(MACHINE).plan(case.kernel).schedule, MACHINE)
    BestFit().run(program, MACHINE)
    Check().run(program, MACHINE)
    tops: dict[str, int] = {}
    for op in program.walk():
        if isinstance(op, BufferOp):
            top = op.get("address") + op.get("bytes") * op.slot_count
            tops[op.memory] = max(tops.get(op.memory, 0), top)
    assert all(top <= (MACHINE.memory(name).bytes or 0) for name, top in tops.items())
    (output,) = run(program, case.operands, MACHINE).values()
    np.testing.assert_array_equal(output, case.expected)
