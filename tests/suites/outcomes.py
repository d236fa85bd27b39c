"""What becomes of the suite's tests on both engines, and what is known of it beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from onnx.backend.test.case.test_case import TestCase

from tests.suites.onnx_cases import PASSED, Outcome, Trial, trials_of
from tests.suites.onnx_engines import interpreted, on_cpu

REFUSED_TESTS = Path(__file__).parent / "onnx_refused.txt"
"""The tests that are refused, each with the code; ``make suite`` writes it."""

TOGETHER = 200
"""Networks that are compiled before they are run, which bounds the space on disk."""


def known_refusals() -> dict[str, str]:
    """The code by the name of a refused test."""
    lines = REFUSED_TESTS.read_text().splitlines()
    return dict(line.split() for line in lines)  # type: ignore[misc]


def outcomes_of(cases: Iterable[TestCase]) -> dict[str, tuple[Outcome, Outcome]]:
    """By name, what a test came to on the interpreter and on the cpu target."""
    found: dict[str, tuple[Outcome, Outcome]] = {}
    trials: list[Trial] = []
    for case in cases:
        prepared = trials_of(case)
        if isinstance(prepared, Outcome):
            found[case.name] = (prepared, prepared)
            continue
        outcome = interpreted(prepared)
        found[case.name] = (outcome, Outcome(PASSED))
        trials += prepared
    for start in range(0, len(trials), TOGETHER):
        part: Sequence[Trial] = trials[start : start + TOGETHER]
        for trial, outcome in zip(part, on_cpu(part), strict=True):
            if outcome.result != PASSED:
                found[trial.case.name] = (found[trial.case.name][0], outcome)
    return found
