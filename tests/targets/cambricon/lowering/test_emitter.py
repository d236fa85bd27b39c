"""Code that is seldom run stands apart, and runs as if it stood where it was emitted."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import run
from tilewright.targets.cambricon.statements import assemble_statements


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("inner", [0, 2])
def test_seldom_code_runs_so_many_times(count: int, inner: int) -> None:
    """Nested, with what stands before and behind it: total counts what has run, in its order."""
    e = Emitter("test", "test")
    total, many, few = e.variable(1), e.variable(count), e.variable(inner)

    def within() -> None:
        e.increase(total, 1000)
        e.repeat(few, lambda: e.increase(total, 100), least=1)

    def body() -> None:
        e.increase(total, 10)
        e.aside(few, within)

    def around() -> None:
        e.emit("SMUL", total, total, 2)
        e.repeat(many, body, least=1)

    e.aside(many, around)
    e.increase(total, 5)
    e.finish()
    words = assemble_statements(e.statements)
    found = run(words, MACHINE, np.zeros(64, np.uint8)).registers[total.number]
    start = 2 if count else 1
    assert found == start + count * (10 + (1000 + 100 * inner if inner else 0)) + 5


def test_seldom_code_takes_an_instruction_where_it_is_passed() -> None:
    """The branch to it; the rest lies behind what follows."""

    def executed(apart: bool) -> int:
        e = Emitter("test", "test")
        none = e.variable(0)
        if apart:
            e.aside(none, lambda: e.increase(none, 1))
        e.finish()
        words = assemble_statements(e.statements)
        return run(words, MACHINE, np.zeros(64, np.uint8)).instructions

    # And the branch at the end that leads past what stands apart.
    assert executed(apart=True) == executed(apart=False) + 2
