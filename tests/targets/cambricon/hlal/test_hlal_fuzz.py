"""Changed texts are assembled and run, or refused with a line; see fuzz.py."""

from __future__ import annotations

from collections import Counter

from tests.targets.cambricon.hlal.fuzz import judge


def test_changed_texts_run_or_are_refused_with_a_line() -> None:
    outcomes = Counter(judge(seed) for seed in range(25))
    assert outcomes["hlal-syntax"] > 3
    assert outcomes["ends"] > 0
