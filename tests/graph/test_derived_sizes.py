"""Sizes that follow from a size of a run: chains of steps, and their reduced forms."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.derived_sizes import Form


@pytest.mark.parametrize("seed", range(20))
def test_reduced_chains_have_the_same_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    unit = int(random.integers(1, 9))
    form, chain = Form.of("h", unit), []
    for _ in range(int(random.integers(1, 7))):
        step = int(random.integers(1, 4)), int(random.integers(-1, 5)), int(random.integers(1, 4))
        chain.append(step)
        form = form.then(*step)
    for size in range(unit, 50 * unit, unit):
        value = size
        for times, more, by in chain:
            value = (value * times + more) // by
        assert form.at(size) == value
    again = form.period
    shifts = {form.at(size + again) - form.at(size) for size in range(unit, 9 * unit, unit)}
    assert len(shifts) == 1, "after a period the remainders are the same"


def test_two_ways_to_the_same_rows() -> None:
    """A window of 3 with padding and one of 1, both by 2; and two halvings, or one by 4."""
    h = Form.of("h")
    assert h.then(1, 2 - 3 + 2, 2) == h.then(1, 0 - 1 + 2, 2)
    assert h.then(1, 0, 2).then(1, 0, 2) == h.then(1, 0, 4)
    assert h.then(1, 0, 2).then(2, 0, 1) != h


def test_halved_and_doubled_a_multiple_is_itself() -> None:
    h = Form.of("h", 4)
    down = h.then(1, 0, 2).then(1, 0, 2)
    assert down.then(2, 0, 1).then(2, 0, 1) == h
    assert h.is_base and h.name == "h" and down.name == "h_of4"
