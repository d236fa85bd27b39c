"""What the planner makes of moves that are one contiguous block each."""

from __future__ import annotations

from dataclasses import replace

from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.planning import Budget, plan
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.exact import search
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.timer import timer


def _layer(channels: int, size: int) -> Kernel:
    """A layer whose weights do not fit the matrix scratchpad."""
    build = KernelBuilder(1)
    x = build.image(1, channels, size, size)
    w = build.operand((channels, channels, 3, 3), 10, layout="OHWI")
    y = build.op("conv", x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    return build.plan_only(build.op("requantise", y, result=(16, 8)))


def test_results_keep_all_channels_while_weights_come_tile_by_tile() -> None:
    outer, inner = plan(_layer(288, 14), MACHINE).schedule.levels
    assert (outer.memory, inner.memory) == ("vsm", "msm")
    assert dict(outer.tile)["co"] == 288
    assert dict(inner.tile)["co"] < 288
    assert inner.order == ("co",)


def test_or_several_tiles_of_channels() -> None:
    found = search(_layer(512, 7), MACHINE, MACHINE.primitive("conv"), Budget(), 32)
    nests = [one.schedule.levels for one in found.candidates]
    parts = [(dict(two[0].tile)["co"], dict(two[1].tile)["co"]) for two in nests if len(two) > 1]
    assert any(inner < outer < 512 for outer, inner in parts)
    assert all(outer % inner == 0 for outer, inner in parts)


def test_one_level_is_enough_where_a_move_takes_any_box() -> None:
    moves = tuple(move.model_copy(update={"linear": False}) for move in MACHINE.moves)
    boxes = MACHINE.model_copy(update={"moves": moves})
    assert len(plan(_layer(288, 14), boxes).schedule.levels) == 1


def test_weights_that_stay_come_while_all_tiles_before_are_computed() -> None:
    """A price that has them come during the last of these alone keeps the best schedule away."""
    build = KernelBuilder(1)
    x = build.image(1, 512, 14, 14)
    w = build.operand((512, 512, 3, 3), 10, layout="OHWI")
    y = build.op("conv", x, w, strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    kernel = build.plan_only(build.op("requantise", y, result=(16, 8)))
    moves = tuple(move.model_copy(update={"early": False}) for move in MACHINE.moves)
    late = plan(kernel, MACHINE.model_copy(update={"moves": moves}), timer=timer(MACHINE))
    found = plan(kernel, MACHINE, timer=timer(MACHINE))
    assert found.cycles < 0.95 * late.cycles
    assert late.predicted_cycles > 1.15 * late.cycles
    assert found.predicted_cycles < 1.15 * found.cycles


def test_the_first_weights_are_priced_in_the_first_kernel_alone() -> None:
    """In others they come while a kernel before computes."""
    kernel = _layer(256, 14)
    budget = Budget()
    first, later = (
        search(replace(kernel, first=first), MACHINE, MACHINE.primitive("conv"), budget, 1)
        for first in (True, False)
    )
    load = 100 + 2 * 64 * 256 * 9 / 128
    assert first.candidates[0].cycles - later.candidates[0].cycles > 0.9 * load


def test_pixels_that_leave_behind_their_products_are_no_store_behind_the_last_tile() -> None:
    """Of 24 transfers one is left then."""
    build = KernelBuilder(1)
    w = build.operand((2048, 512, 1, 1), 10, layout="OHWI")
    x = build.image(1, 512, 1, 49)
    y = build.op("conv", x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1)
    kernel = build.plan_only(build.op("requantise", y, result=(16, 8)))
    conv = MACHINE.primitive("conv")
    output = conv.operands["output"].model_copy(update={"trails": False})
    whole = conv.model_copy(update={"operands": {**conv.operands, "output": output}})
    alone, all_of_them = (
        {one.schedule: one.cycles for one in search(kernel, MACHINE, how, Budget(), 64).candidates}
        for how in (conv, whole)
    )
    tile = {"co": 256, "ow": 25}.items()
    both = [one for one in alone if one in all_of_them and tile <= dict(one.levels[0].tile).items()]
    assert both
    for one in both:
        assert 23 * 100 <= all_of_them[one] - alone[one] <= 23 * 110
