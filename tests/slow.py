"""Parameters of a test of which some run in `make test-all` alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def but_fast(values: Iterable[Any], fast: Sequence[Any]) -> list[Any]:
    """The values as parameters; those that are not ``fast`` carry the mark ``slow``."""
    return [pytest.param(value, marks=[pytest.mark.slow] * (value not in fast)) for value in values]
