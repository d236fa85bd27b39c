"""The time of runs in which the host and the accelerator work at once."""

from functools import cache
from random import Random

import pytest

from tilewright.codegen.program.concurrent import Span, Step, elapsed


def span(first: int, size: int = 1) -> Span:
    return Span("a", first, first + size, size, size)


def step(on_host: bool, seconds: float, reads: list[int], writes: list[int]) -> Step:
    return Step(on_host, seconds, tuple(map(span, reads)), tuple(map(span, writes)))


def test_independent_steps_take_the_longer_time() -> None:
    assert elapsed([step(True, 3, [0], [1]), step(False, 5, [0], [2])]) == 5
    assert elapsed([step(True, 3, [0], [1]), step(True, 5, [0], [2])]) == 8
    assert elapsed([]) == 0


@pytest.mark.parametrize(
    ("first", "second"), [(([0], [1]), ([1], [2])), (([1], [2]), ([0], [1])), (([0], [1]),) * 2]
)
def test_steps_that_meet_in_what_they_write_run_in_turn(first, second) -> None:
    assert elapsed([step(True, 3, *first), step(False, 5, *second)]) == 8


def test_a_fork_and_a_join() -> None:
    steps = [
        step(False, 1, [0], [1]),
        step(True, 4, [1], [2]),
        step(False, 3, [1], [3]),
        step(False, 2, [2, 3], [4]),
    ]
    assert elapsed(steps) == 1 + max(4, 3) + 2


def test_random_steps_take_the_longest_path() -> None:
    random = Random(3)
    overlapped = 0
    for _ in range(200):
        steps = [
            step(
                random.random() < 0.5,
                random.randint(1, 9),
                random.sample(range(8), random.randint(0, 2)),
                random.sample(range(8), 1),
            )
            for _ in range(random.randint(1, 12))
        ]
        touched = [({s.first for s in one.reads}, {s.first for s in one.writes}) for one in steps]

        @cache
        def end(number: int, steps=steps, touched=touched) -> float:
            reads, writes = touched[number]
            before = [
                other
                for other in range(number)
                if steps[other].on_host == steps[number].on_host
                or touched[other][1] & (reads | writes)
                or touched[other][0] & writes
            ]
            return steps[number].seconds + max(map(end, before), default=0)

        whole = sum(one.seconds for one in steps)
        assert elapsed(steps) == max(map(end, range(len(steps))))
        overlapped += elapsed(steps) < whole
    assert overlapped > 50


def test_parts_of_a_concatenation_do_not_meet() -> None:
    left, right = Span("a", 0, 96, 6, 10), Span("a", 6, 100, 4, 10)
    assert not left.meets(right) and not right.meets(left)
    wide = Span("a", 5, 100, 4, 10)
    assert left.meets(wide) and wide.meets(left)
    assert left.meets(Span("a", 6, 100, 4, 12))
    assert not left.meets(Span("b", 0, 96, 6, 10))
    assert not left.meets(Span("a", 96, 200, 6, 10))


@pytest.mark.parametrize("shift", range(12))
@pytest.mark.parametrize("runs", [(3, 4), (6, 4), (1, 9)])
def test_spans_meet_where_their_bytes_do(shift: int, runs: tuple[int, int]) -> None:
    one = Span("a", 0, 40 + runs[0], runs[0], 10)
    other = Span("a", shift, shift + 40 + runs[1], runs[1], 10)
    held = [{s.first + 10 * k + n for k in range(5) for n in range(s.run)} for s in (one, other)]
    assert one.meets(other) == bool(held[0] & held[1])
