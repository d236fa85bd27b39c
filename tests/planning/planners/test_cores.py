"""Grids of parts for cores with memories of their own."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil, prod

import pytest

from tests.planning.planning_kernels import add, conv, dense, depthwise, pool
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.own import start_cycles
from tilewright.planning.planners.cores import ROUNDS, grids, one_core, part_of, parts_of
from tilewright.planning.planners.exact import plan_exact
from tilewright.planning.planners.schedules import agreeing
from tilewright.targets.sunway.machine import MACHINE


def in_floats(kernel: Kernel) -> Kernel:
    """A kernel on float32, its tensors row-major."""

    def changed(operand: Operand) -> Operand:
        return replace(operand, element="float32", fraction=0, layout="")

    stages = tuple(
        replace(
            stage,
            inputs=tuple(changed(operand) for operand in stage.inputs),
            output=changed(stage.output),
        )
        for stage in kernel.stages
        if stage.operation != "requantise"
    )
    return replace(kernel, stages=stages)


KERNELS = [
    in_floats(kernel)
    for kernel in (
        conv(64, 64, 28),
        depthwise(32, 14),
        dense(400, 120),
        pool(16, 12, 2, 2),
        add(24, 20),
    )
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_the_shared_loops_cover_the_result_once(kernel: Kernel) -> None:
    found = Planner(MACHINE).plan(kernel)
    shared = found.schedule.shared.split()
    outer, *rest = found.schedule.levels
    extents = kernel.anchor.extents
    assert outer.memory == MACHINE.main and outer.order == tuple(shared) and rest
    assert not set(shared) & set(kernel.anchor.reduction)
    parts = prod(ceil(extents[dim] / outer.size(dim, extents[dim])) for dim in shared)
    assert 1 <= parts <= MACHINE.cores * ROUNDS
    # Fewer parts than cores only where the result's dims give no more.
    whole = prod(extents[dim] for dim in extents if dim not in kernel.anchor.reduction)
    assert parts >= min(MACHINE.cores, whole) or ceil(whole / parts) > 1


def test_what_is_predicted_is_the_slowest_cores_time_and_the_spawn() -> None:
    kernel = KERNELS[0]
    found = Planner(MACHINE).plan(kernel)
    outer = found.schedule.levels[0]
    extents = kernel.anchor.extents
    parts = prod(ceil(extents[dim] / outer.size(dim, extents[dim])) for dim in outer.order)
    part = plan_exact(part_of(kernel, dict(outer.tile)), one_core(MACHINE))
    rounds = ceil(parts / MACHINE.cores)
    spawn = start_cycles(MACHINE)
    assert found.predicted_cycles == pytest.approx(rounds * part.predicted_cycles + spawn)
    assert found.predicted_cycles >= found.granule_bound


@pytest.mark.parametrize("cores", [1, 6, 64])
def test_grids_are_those_that_an_enumeration_finds(cores: int) -> None:
    kernel = KERNELS[3]
    (primitive, *_) = agreeing(kernel, MACHINE)
    extents = kernel.anchor.extents
    choices = [
        {extent}
        if dim in kernel.anchor.reduction
        else {ceil(extent / count) for count in range(1, min(extent, cores) + 1)}
        for dim, extent in extents.items()
    ]
    wanted = {
        sizes: prod(ceil(e / s) for e, s in zip(extents.values(), sizes, strict=True))
        for sizes in product(*choices)
    }
    least = min(cores, max(count for count in wanted.values() if count <= cores * ROUNDS))
    wanted = {sizes: n for sizes, n in wanted.items() if least <= n <= cores * ROUNDS}
    sizes = grids(kernel, primitive, cores)
    parts = parts_of(kernel, sizes).tolist()
    rows = [tuple(int(column[row]) for column in sizes.values()) for row in range(len(parts))]
    assert dict(zip(rows, parts, strict=True)) == wanted


def test_one_core_has_its_share_of_the_bandwidth() -> None:
    one = one_core(MACHINE)
    assert one.cores == 1 and one.memory("ldm") == MACHINE.memory("ldm")
    for move, own in zip(MACHINE.moves, one.moves, strict=True):
        assert own.bytes_per_cycle * 64 == pytest.approx(move.bytes_per_cycle)
        assert own.efficiency == move.efficiency
