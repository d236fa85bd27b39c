"""Signals and waits, matched: against a machine that executes them one by one."""

import random

import numpy as np

from tilewright.simulate.events import EVENT, counts, match


def table(*rows: tuple[int, int, int, int, bool]) -> np.ndarray:
    return np.array(list(rows), EVENT)


def test_the_nth_wait_takes_the_nth_signal():
    events = table(
        (1, 0, 1, 0, True),
        (2, 0, 1, 1, True),
        (3, 0, 1, 0, True),
        (0, 0, 1, 0, False),
        (1, 0, 1, 0, False),
        (2, 0, 1, 1, False),
    )
    matched = match(events, 1)
    assert matched.waits.tolist() == [3, 4, 5] and matched.signals.tolist() == [0, 2, 1]
    assert counts(events, matched).tolist() == [0, 0, 0, 1, 3, 2]
    assert matched.again.tolist() == [2] and matched.taken.tolist() == [3]
    assert not matched.unanswered.size and not matched.unused.size


def test_waits_that_name_a_value():
    events = table((1, 0, 0, 0, True), (2, 0, 0, 0, True), (0, 0, 0, 0, False))
    matched = match(events, None, np.array([0, 0, 2]))
    assert matched.signals.tolist() == [1] and matched.unused.tolist() == [0]
    assert match(events, None, np.array([0, 0, 3])).unanswered.tolist() == [2]
    assert match(events, None, np.array([0, 0, 0])).unanswered.tolist() == [2]


def test_random_programs_run_as_they_are_matched():
    """One after the other, semaphores answer, are left over and overflow where the match says."""
    seen = {"unanswered": 0, "unused": 0, "again": 0}
    for seed in range(300):
        pick = random.Random(seed)
        events = np.zeros(pick.randint(0, 14), EVENT)
        for event in events:
            event["source"], event["id"] = pick.randrange(2), pick.randrange(2)
            event["target"], event["signal"] = 2, pick.random() < 0.75
        matched = match(events, 1)
        held: dict[tuple[int, int], list[int]] = {}
        answers: dict[int, int] = {}
        for number, event in enumerate(events):
            queue = held.setdefault((int(event["source"]), int(event["id"])), [])
            if event["signal"]:
                queue.append(number)
            elif queue:
                answers[number] = queue.pop(0)
            elif not matched.unanswered.size:
                raise AssertionError("a wait is stuck")
            else:
                break
        else:
            assert not matched.unanswered.size
            pairs = zip(matched.waits.tolist(), matched.signals.tolist(), strict=True)
            assert dict(pairs) == answers
            left = sorted(number for queue in held.values() for number in queue)
            assert matched.unused.tolist() == left
            seen["unused"] += bool(left)
            seen["again"] += bool(matched.again.size)
            continue
        seen["unanswered"] += 1
    assert min(seen.values()) > 15
