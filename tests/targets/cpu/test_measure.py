"""Timing candidates of a schedule: whose least time counts, and what is not run again."""

from math import inf

from tests.targets.cpu.planning.machines import product

from tilewright.targets.cpu.candidates import Candidates
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.measure import in_turns, measure
from tilewright.targets.cpu.planning.planner import ranked


class Scripted(Candidates):
    """Candidates that take what a script says, run by run."""

    def __init__(self, script: dict[int, list[float]]) -> None:
        self.script = {number: iter(times) for number, times in script.items()}
        self.runs = dict.fromkeys(script, 0)

    def seconds(self, number: int, repeats: int = 1) -> float:
        """The next time of the script."""
        self.runs[number] += 1
        return next(self.script[number])


def test_the_least_time_of_turns_counts() -> None:
    # A first run; then, turn by turn, a run that warms up and one that is timed.
    times = [9.0, 0.1, 3.0, 0.1, 2.0, 0.1, 4.0, 0.1, 2.5]
    assert in_turns(Scripted({0: times}), [0], 5, 0.0) == {0: 2.0}


def test_what_is_slow_is_measured_in_two_turns() -> None:
    candidates = Scripted({0: [1.0] * 9, 1: [2.0] * 9})
    assert in_turns(candidates, [0, 1], 5, 0.0) == {0: 1.0, 1: 2.0}
    assert candidates.runs == {0: 9, 1: 5}


def test_schedules_take_time() -> None:
    """Of a product of 64 x 64 x 64: more than its arithmetic can, and less than 10 ms."""
    kernel, cpu = product(64, 64, 64, "ci co"), machine()
    schedules = [schedule for _, _, schedule in ranked(kernel, cpu)[:2]]
    found = measure(kernel, cpu, [*schedules, schedules[0]], turns=2, turn_seconds=0.0)
    assert len(found) == 3 and found[2] == found[0]
    assert all(64**3 / 1e13 < seconds < 1e-2 for seconds in found) and inf not in found
    assert measure(kernel, cpu, []) == []
