"""Random programs end or are refused; see fuzz.py."""

from __future__ import annotations

from collections import Counter

from tests.targets.cambricon.fuzz import judge


def test_random_words_end_or_are_refused() -> None:
    outcomes = Counter(judge(seed) for seed in range(120))
    assert outcomes["ends"] > 8
    assert outcomes["program-bounds"] > 20
    assert outcomes["program-branch"] > 0
