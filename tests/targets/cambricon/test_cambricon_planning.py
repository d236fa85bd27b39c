"""What the planner makes of moves that are one contiguous block each."""

from __future__ import annotations

from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.planning import Budget, Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.exact import search
from tilewright.targets.cambricon.capabilities import CambriconMove
from tilewright.targets.cambricon.machine import MACHINE


def _layer(channels: int, size: int) -> Kernel:
    """A layer whose weights do not fit the matrix scratchpad."""
    build = KernelBuilder(1)
    x = build.image(1, channels, size, size)
    w = build.operand((channels, channels, 3, 3), 10, layout="OHWI")
    y = build.op("conv", x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    return build.plan_only(build.op("requantise", y, result=(16, 8)))


def test_results_keep_all_channels_while_weights_come_tile_by_tile() -> None:
    outer, inner = Planner(MACHINE).plan(_layer(256, 14)).schedule.levels
    assert (outer.memory, inner.memory) == ("vsm", "msm")
    assert dict(outer.tile)["co"] == 256
    assert dict(inner.tile)["co"] < 256
    assert inner.order == ("co",)


def test_or_several_tiles_of_channels() -> None:
    found = search(_layer(512, 7), MACHINE, MACHINE.primitive("conv"), Budget(), 32)
    nests = [one.schedule.levels for one in found.candidates]
    parts = [(dict(two[0].tile)["co"], dict(two[1].tile)["co"]) for two in nests if len(two) > 1]
    assert any(inner < outer < 512 for outer, inner in parts)
    assert all(outer % inner == 0 for outer, inner in parts)


def test_one_level_is_enough_where_a_move_takes_any_box() -> None:
    moves = tuple(move.model_copy(update={"own": CambriconMove()}) for move in MACHINE.moves)
    boxes = MACHINE.model_copy(update={"moves": moves})
    assert len(Planner(boxes).plan(_layer(256, 14)).schedule.levels) == 1
