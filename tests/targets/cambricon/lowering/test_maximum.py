"""Gradients of maxima: words equal the graph bit for bit, and the graph a loop over elements."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.errors import TilewrightError
from tilewright.ir import VerifyException
from tilewright.numerics import reference
from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine


def maximum_case(seed: int) -> Case:
    """Values, the greatest of them and gradients; many values are alike."""
    build = KernelBuilder(seed)
    pick = build.random
    n, values, p = int(pick.integers(1, 40)), int(pick.choice([1, 2, 4, 9, 12])), 0
    p = int(pick.integers(1, 150))
    x = build.operand((n, values + 2, p), 8)
    data = build.arguments[0][1]
    data[:, :-2] = pick.integers(-2, 3, (n, values, p))
    data[:, -2] = data[:, :-2].max(axis=1)
    return build.finish(build.op("maximum_gradient", x))


@pytest.mark.parametrize("seed", range(10))
def test_words(seed: int) -> None:
    case, described = maximum_case(seed), machine(CONFIGURATIONS[seed % 3])
    pick, extents = np.random.default_rng(seed), case.kernel.anchor.extents
    tile = tuple(
        (dim, extents[dim] if dim in "jk" else -(-extents[dim] // int(pick.integers(1, 4))))
        for dim in extents
    )
    buffers = tuple((o.name, int(pick.integers(1, 3))) for o in case.kernel.operands)
    order = tuple(str(dim) for dim in pick.permutation(["n", "p"]))
    cut = Schedule("maximum_gradient", (Level("vsm", tile, order),), buffers)
    for schedule in (Planner(described).plan(case.kernel).schedule, cut):
        try:
            found, _, _ = run_case(case, schedule, described)
        except TilewrightError as error:
            assert schedule is cut and error.problems[0].code == "tile-capacity"
            continue
        np.testing.assert_array_equal(found, case.expected)


def test_the_first_of_the_greatest_takes_the_gradient() -> None:
    given = np.random.default_rng(1).integers(-2, 3, (3, 6, 20)).astype(np.int16)
    found = reference.maximum_gradient(given)
    for n, p in np.ndindex(3, 20):
        *values, greatest, gradient = given[n, :, p].tolist()
        taker = next((i for i, value in enumerate(values) if value >= greatest), len(values) - 1)
        expected = [gradient if i == taker else 0 for i in range(len(values))]
        assert found[n, :, p].tolist() == expected


def test_rank_and_steps_are_checked() -> None:
    for shape in ((2, 6), (1, 2, 5)):
        build = KernelBuilder(0)
        with pytest.raises(VerifyException, match=r"rank 3|steps"):
            build.op("maximum_gradient", build.operand(shape, 8))
