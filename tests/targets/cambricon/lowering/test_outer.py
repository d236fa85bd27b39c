"""Products as sums of outer products: words equal the graph bit for bit, however they are cut."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, MACHINE, machine


def outer_case(seed: int, depth: int, *, transposed: bool = True, wide: bool = False) -> Case:
    """[rows, columns] of [depth, rows] (transposed) or [rows, depth] times [depth, columns]."""
    build = KernelBuilder(seed)
    rows, columns = (int(v) for v in build.random.integers(1, (90, 130)))
    a = build.operand((depth, rows) if transposed else (rows, depth), 9)
    y = build.op("matmul", a, build.operand((depth, columns), 10), transpose_a=transposed)
    if not wide:
        y = build.op("requantise", y, result=(16, int(build.random.integers(4, 12))))
    return build.finish(y)


@pytest.mark.parametrize("seed", range(12))
def test_planned(seed: int) -> None:
    described = machine(CONFIGURATIONS[seed % 3])
    case = outer_case(seed, (1, 2, 7, 40)[seed % 4], wide=seed % 5 == 4)
    chosen = Planner(described).plan(case.kernel).schedule
    assert chosen.primitive == "outer" or seed % 4 == 0
    found, result, _ = run_case(case, chosen, described)
    np.testing.assert_array_equal(found, case.expected)
    assert result.cycles > 0


@pytest.mark.parametrize("seed", range(18))
def test_cut_anyhow(seed: int) -> None:
    pick = np.random.default_rng(seed)
    case = outer_case(seed, int(pick.choice([1, 3, 8])), wide=seed % 6 == 5)
    extents = case.kernel.anchor.extents
    tile = tuple((dim, -(-extents[dim] // int(pick.integers(1, 4)))) for dim in extents)
    order = (*(str(dim) for dim in pick.permutation(["n", "co"])), "ci")
    buffers = tuple((o.name, int(pick.integers(1, 3))) for o in case.kernel.operands)
    schedule = Schedule("outer", (Level("vsm", tile, order),), buffers)
    described = machine(CONFIGURATIONS[seed % 3])
    try:
        found, _, _ = run_case(case, schedule, described)
    except TilewrightError as error:
        assert error.problems[0].code == "tile-capacity"
        pytest.skip("it does not fit")
    np.testing.assert_array_equal(found, case.expected)


def test_layouts_decide() -> None:
    """Rows of a reduction side by side take one primitive, steps of it the other; one step both."""

    def names(depth: int, transposed: bool) -> list[str]:
        case = outer_case(1, depth, transposed=transposed)
        return [one.name for one in agreeing(case.kernel, MACHINE)]

    assert names(3, True) == ["outer"]
    assert names(3, False) == ["matmul"]
    assert names(1, True) == names(1, False) == ["matmul", "outer"]


def test_one_step_is_bound_by_its_store() -> None:
    build = KernelBuilder(3)
    a, b = build.operand((1, 512), 9), build.operand((1, 1024), 10)
    y = build.op("requantise", build.op("matmul", a, b, transpose_a=True), result=(16, 8))
    case = build.finish(y)
    found, result, _ = run_case(case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE)
    np.testing.assert_array_equal(found, case.expected)
    assert result.cycles < 1.15 * 512 * 1024 * 2 / 128
