"""Images of one slot whose rows come one by one: which schedules have them, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv

from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.nests import arrangements, nests_of
from tilewright.planning.planners.schedules import schedule_of
from tilewright.planning.space import Space, build_space
from tilewright.targets.cambricon.capabilities import CambriconPrimitive
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.planning.rolled import slots_of_rows

PRIMITIVES = tuple(
    one.model_copy(update={"own": one.own.model_copy(update={"rolls": ""})})
    if isinstance(one.own, CambriconPrimitive)
    else one
    for one in MACHINE.primitives
)
WHOLE = MACHINE.model_copy(update={"primitives": PRIMITIVES})
"""The machine if images came whole."""


def layer(kernel: int, stride: int) -> Kernel:
    size, pad = 14 * stride, kernel // 2
    pads = (pad, pad, pad, pad)
    return conv(256, 256, (size, size), (kernel, kernel), pads, (), (stride, stride)).kernel


def space_of(kernel: Kernel) -> Space:
    return build_space(kernel, MACHINE, MACHINE.primitive("conv"))


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (2, 1)])
def test_one_loop_goes_down_the_image(kernel: int, stride: int) -> None:
    """It is the outermost one; those inside it step through channels of the result alone."""
    one = layer(kernel, stride)
    space, image, rolled = space_of(one), one.anchor.inputs[0], 0
    for nest in nests_of(space):
        for arrangement in arrangements(space, nest):
            found = slots_of_rows(space, arrangement, arrangement.slots, "oh")
            for row in np.flatnonzero(arrangement.valid)[::3].tolist():
                schedule = schedule_of(space, arrangement, row)
                order = [dim for level in schedule.levels for dim in level.order]
                slots = {name: int(column[row]) for name, column in arrangement.slots.items()}
                if slots[image.name] == 1 and order[:1] == ["oh"]:
                    moves = [dim for dim in order if dim in image.dims]
                    slots[image.name] += moves == ["oh"]
                    rolled += moves == ["oh"]
                assert {name: int(column[row]) for name, column in found.items()} == slots
    assert rolled


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (2, 3)], ids=["one row", "rows left out"])
def test_windows_of_several_rows_leave_none_out(kernel: int, stride: int) -> None:
    """Others share no rows, or do not take all rows that lie one behind the other."""
    space = space_of(layer(kernel, stride))
    for nest in nests_of(space):
        for arrangement in arrangements(space, nest):
            found = slots_of_rows(space, arrangement, arrangement.slots, "oh")
            assert found is arrangement.slots


def test_the_price_is_that_of_two_slots() -> None:
    """Where there is room for one slot alone, tiles need not wait for their images."""
    kernel = layer(3, 1)
    assert (
        Planner(MACHINE).plan(kernel).predicted_cycles
        < 0.995 * Planner(WHOLE).plan(kernel).predicted_cycles
    )
