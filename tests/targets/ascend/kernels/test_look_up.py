"""Look-ups: emitted, read again, proven, and run on the host core against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.papers.ascend.reader.kernels import read_kernels, verified
from tests.slow import but_fast
from tests.targets.ascend.moved_kernels import looked_up, move_program

from tilewright.codegen.nest.value import variable
from tilewright.errors import TilewrightError
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.host import build
from tilewright.targets.ascend.look_ups import check_look_ups
from tilewright.targets.ascend.machine import ASCEND_910, BLOCK
from tilewright.targets.ascend.program import (
    Buffer,
    Place,
    Program,
    Tensor,
    element_at,
    scalar,
)

CASES = [
    # outer, extent, inner, count, bytes of ub
    (1, 50, 48, 7, 0),
    (2, 9, 33, 5, 20_480),
    (1, 1000, 768, 128, 0),
    (1, 3, 1000, 4, 20_480),
    (3, 5, 1, 6, 0),
]


@pytest.mark.parametrize("case", but_fast(CASES, CASES[:2] + CASES[3:4]))
def test_rows_by_index(case: tuple[int, ...]) -> None:
    """Indices out of range, too, in any order of pipes."""
    outer, extent, inner, count, ub = case
    core = replace(ASCEND_910, ub=ub) if ub else ASCEND_910
    program = move_program(looked_up(outer, extent, inner, count), core)
    text = kernel_text(program)
    (again,) = read_kernels(text, core)
    assert kernel_text(again) == text
    verified(again, core)
    kernel = build(text, program.name, core)
    random = np.random.default_rng(count)
    size = outer * extent * inner
    x = np.zeros(size + 16, np.float16)
    x[:size] = random.normal(0, 1, size)
    i = np.zeros(count + 4, np.int64)
    i[:count] = random.integers(-extent - 5, extent + 5, count)
    for order in (0, 1, 2, 77):
        out = np.full(outer * count * inner + 16, np.nan, np.float16)
        outcome = kernel.run({"x": x, "i": i, "out": out}, order=order, blocks=program.blocks)
        assert not outcome.problems
        places = np.clip(np.where(i[:count] < 0, i[:count] + extent, i[:count]), 0, extent - 1)
        expected = np.take(x[:size].reshape(outer, extent, inner), places, 1)
        np.testing.assert_array_equal(out[:-16].reshape(expected.shape), expected)


def test_what_depends_on_an_index() -> None:
    """Only where an operand is read that the kernel leaves alone."""
    i, x = Tensor("i", 64, "int64_t"), Tensor("x", 1024)
    out = Tensor("out", 1024, written=True)
    at = variable("at")
    named = scalar("at", element_at(i, 3))
    ub = Buffer("rows", "ub", 0, 1024)
    fine = isa.copy(Place(ub), Place(x, at * BLOCK), 1, 1)
    wrong = (
        isa.copy(Place(out, at * BLOCK), Place(ub), 1, 1),
        isa.copy(Place(ub), Place(out, at * BLOCK), 1, 1),
        isa.copy(Place(ub, at * BLOCK), Place(x), 1, 1),
        isa.copy(Place(ub), Place(x), at, 1),
    )
    check_look_ups(Program("fine", (i, x, out), [named, fine], (ub,)))
    for command in wrong:
        with pytest.raises(TilewrightError, match="decides more than where"):
            check_look_ups(Program("wrong", (i, x, out), [named, command], (ub,)))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("= i[row]", "= out[row]", "no parameter of integers"),
        ("= i[row]", "= i[column]", "no loop around"),
        ("wrapped = ", "given = ", "another name's already"),
        ("(row * 96)", "(at * 96)", "decides more than where"),
    ],
)
def test_what_the_reader_refuses(old: str, new: str, reason: str) -> None:
    text = kernel_text(move_program(looked_up(1, 50, 48, 7)))
    assert old in text
    with pytest.raises(TilewrightError, match=reason):
        verified(read_kernels(text.replace(old, new), ASCEND_910)[0], ASCEND_910)
