"""Concatenations on the chip: words equal the graph bit for bit, whatever is joined, and along
which axis."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, Configuration, machine
from tilewright.targets.cambricon.timer import timer


def join_case(seed: int) -> Case:
    """So many tensors of a rank, joined along an axis."""
    build = KernelBuilder(seed)
    pick = build.random
    rank, parts = 2 + seed % 3, 1 + seed % 6
    shape = [int(extent) for extent in pick.integers(1, (3, 20, 12, 11))][:rank]
    axis = int(pick.integers(-rank, rank))
    images: list[object] = []
    for _ in range(parts):
        shape[axis] = int(pick.integers(1, (40, 3)[seed % 2]))
        images.append(build.image(*shape))
    return build.finish(build.op("concat", *images, axis=axis))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(24))
def test_planned(seed: int) -> None:
    described = machine(CONFIGURATIONS[seed % 3])
    case = join_case(seed)
    found = Planner(described).plan(case.kernel)
    assert found.schedule.primitive == "join"
    result, run, _ = run_case(case, found.schedule, described)
    np.testing.assert_array_equal(result, case.expected)
    assert run.cycles == timer(described, prefetched=False)(case.kernel, found.schedule)


@pytest.mark.parametrize("seed", range(12))
def test_cut_anyhow(seed: int) -> None:
    """Tiles of any sizes of the other axes, edges among them, single and double buffered."""
    case = join_case(seed + 100)
    pick = np.random.default_rng(seed)
    extents = case.kernel.anchor.extents
    cut = [dim for dim in extents if dim not in ("axis", "parts")]
    sizes = {dim: int(pick.integers(1, extents[dim] + 1)) for dim in cut}
    order = tuple(dim for dim in cut if sizes[dim] < extents[dim])
    level = Level("vsm", tuple({**extents, **sizes}.items()), order)
    slots = tuple((o.name, int(pick.integers(1, 3))) for o in case.kernel.operands)
    result, _, _ = run_case(case, Schedule("join", (level,), slots), machine())
    np.testing.assert_array_equal(result, case.expected)


@pytest.mark.slow
@pytest.mark.parametrize("size", CONFIGURATIONS, ids=lambda size: size.name)
def test_many_pixels_take_what_is_planned(size: Configuration) -> None:
    """Of several concatenations together; one may be further off."""
    planned = taken = 0.0
    for channels in ((16, 16), (8, 24, 40), (64, 64), (100, 28), (96, 32, 16, 64)):
        build = KernelBuilder(1)
        images = [build.image(1, count, 20, 28) for count in channels]
        case = build.finish(build.op("concat", *images, axis=1))
        found = Planner(machine(size)).plan(case.kernel)
        planned += found.predicted_cycles
        taken += timer(machine(size), prefetched=False)(case.kernel, found.schedule)
    assert taken == pytest.approx(planned, rel=0.12)
