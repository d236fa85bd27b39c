"""Parameters of a test of which some run in `make test-all` alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def but_fast(values: Iterable[Any], fast: Sequence[Any]) -> list[Any]:
    """The values as parameters; those that are not ``fast`` carry the mark ``slow``."""
    return [pytest.param(value, marks=[pytest.mark.slow] * (value not in fast)) for value in values]


def crossed(first: Iterable[Any], second: Iterable[Any], fast: Iterable[Any] = ()) -> list[Any]:
    """All pairs of two lists' values as parameters; fast are as many as it takes for each value of
    ``first`` and each of ``fast`` (all of ``second`` where it is empty) to be in one."""
    first, second = list(first), list(second)
    columns = [second.index(value) for value in fast] or list(range(len(second)))
    pairs = {
        (i % len(first), columns[i % len(columns)]) for i in range(max(len(first), len(columns)))
    }
    return [
        pytest.param(one, other, marks=[pytest.mark.slow] * ((i, j) not in pairs))
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]


def dealt(first: Sequence[Any], second: Sequence[Any], fast: Sequence[Any] = ()) -> list[Any]:
    """Each value of ``second`` with one of ``first``, in turn; those not ``fast`` carry the mark
    ``slow``.

    For values that show faults of their own, whose pairs show no others."""
    return [
        pytest.param(first[i % len(first)], other, marks=[pytest.mark.slow] * (other not in fast))
        for i, other in enumerate(second)
    ]
