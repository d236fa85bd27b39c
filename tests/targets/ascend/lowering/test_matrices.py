"""Products from tile programs: batches, transposed operands, what follows, and their numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, run
from tests.targets.ascend.cube_kernels import (
    Product,
    levels,
    pack,
    planned,
    program_of,
    unpack,
)

from tilewright.errors import TilewrightError
from tilewright.planning.schedule import Schedule
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910, DaVinci
from tilewright.targets.ascend.program import Command, statements

CASES = {
    "plain": Product(64, 96, 48),
    "relu": Product(33, 50, 17, relu=True),
    "bias, residual, relu": Product(47, 333, 100, bias=True, residual=True, relu=True),
    "a row": Product(1, 100, 15, right_transposed=True),
    "an element": Product(1, 1, 1),
    "both transposed": Product(40, 20, 70, left_transposed=True, right_transposed=True),
    "turned": Product(40, 20, 70, batch=2, turned=True),
    "batch": Product(64, 64, 64, batch=3, right_transposed=True),
    "ragged batch": Product(
        40, 20, 70, batch=3, left_transposed=True, right_transposed=True, residual=True
    ),
    "batch with one right operand": Product(40, 20, 70, batch=3, shared=True, bias=True, relu=True),
}

ORDERS = (0, 1, 5, 12, 100)
"""As issued, pipes early and late, and at random."""


def check(of: Product, schedule: Schedule | None = None, core: DaVinci = ASCEND_910) -> None:
    kernel = of.kernel()
    program = built(program_of(kernel, schedule or planned(kernel), core), core)
    for order in ORDERS:
        given, expected = of.arguments(order)
        run(program, given, order)
        np.testing.assert_array_equal(unpack(given["c"], expected.shape), expected)


@pytest.mark.parametrize(
    "name", but_fast(list(CASES), ["ragged batch", "bias, residual, relu", "turned"])
)
def test_planned_products_are_exact(name: str) -> None:
    check(CASES[name])


@pytest.mark.few(2)
@pytest.mark.parametrize("core", [ASCEND_910, ASCEND_310])
@pytest.mark.parametrize("slots", [1, 2])
def test_tiles_in_both_levels(slots: int, core: DaVinci) -> None:
    """Edge tiles of edge tiles, each with two slots."""
    of = Product(90, 100, 170, residual=True, relu=True)
    outer = {"m": 48, "co": 96, "ci": 100}
    inner = {"m": 32, "co": 64, "ci": 32}
    schedule = levels(outer, inner, ("co", "m"), ("m", "co", "ci"), slots)
    check(of, schedule, core)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 15, 17, 100, 333])
@pytest.mark.parametrize(("depth", "columns"), [(1, 511), (15, 17), (333, 15), (511, 100)])
def test_extents_that_no_block_divides(rows: int, depth: int, columns: int) -> None:
    check(Product(rows, depth, columns, bias=True, right_transposed=rows % 2 == 0))


def test_numbers_against_doubles() -> None:
    """Sums are float32, rounded once to half precision; bias and relu round again."""
    of = Product(100, 333, 65, bias=True, residual=True)
    kernel = of.kernel()
    program = built(program_of(kernel, planned(kernel)))
    random = np.random.default_rng(2)
    a, b, d = (
        random.normal(0, 1, shape).astype(np.float16)
        for shape in ((100, 333), (333, 65), (100, 65))
    )
    bias = random.normal(0, 1, 80).astype(np.float16)
    given = {"a": pack(a), "b": pack(b), "bias": bias, "d": pack(d), "c": pack(np.full_like(d, 0))}
    run(program, given)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    expected = exact + bias[:65] + d
    # Of the sum, of the sum with the bias, of the result; and float32's own, of 333 terms.
    size = abs(exact) + abs(exact + bias[:65]) + abs(expected)
    terms = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    bound = 2.0**-11 * size + 333 * 2.0**-24 * terms
    assert (abs(unpack(given["c"], d.shape) - expected) <= bound * 1.01 + 2.0**-24).all()


def test_a_transposed_right_operand_is_free() -> None:
    """As many commands, and as many bytes, as for one that lies the other way."""
    counts: list[list[str]] = []
    for transposed in (False, True):
        of = Product(64, 64, 64, batch=2, right_transposed=transposed)
        schedule = levels({"b0": 1}, {"b0": 1, "ci": 32}, ("b0",), ("ci",))
        program = program_of(of.kernel(), schedule)
        commands = [one for one in statements(program.body) if isinstance(one, Command)]
        counts.append([command.name for command in commands])
    assert counts[0] == counts[1]


def test_tiles_that_are_no_blocks_are_refused() -> None:
    of = Product(64, 64, 64)
    tile = {"m": 24, "co": 64, "ci": 64}
    with pytest.raises(TilewrightError, match="no whole blocks of 16"):
        program_of(of.kernel(), levels(tile, tile, ("m",), ()))
