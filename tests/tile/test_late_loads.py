"""Loads that wait for their only slot stand behind the others of their tile in the queue."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning.space.test_join_pixels import convolution
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.join_pixels import join_pixels
from tilewright.targets.cambricon_x.machine import machine
from tilewright.targets.generic.timer import timer
from tilewright.tile.dialect import MoveOp, ProgramOp
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.queues import Queues

MACHINE = machine()
EAGER = MACHINE.model_copy(update={"late_loads": False})


def kernel(co: int = 64, ci: int = 128) -> Kernel:
    """A row of 49 pixels, with a residual."""
    return join_pixels(convolution(size=(7, 7), co=co, ci=ci).kernel, MACHINE)


def schedule(of: Kernel, slots: dict[str, int], order: tuple[str, ...], ci: int) -> Schedule:
    """Tiles of 16 channels of 13 pixels; slots by role, 1 where none are given."""
    tile_of = of.anchor.extents | {"co": 16, "ow": 13, "ci": ci}
    kinds = tuple((one.name, slots.get(one.role, 1)) for one in of.operands)
    return Schedule("conv", (Level("nbin", tuple(tile_of.items()), order),), kinds)


def loads(program: ProgramOp) -> dict[str, MoveOp]:
    """The loads by the roles of their buffers."""
    found = (op for op in program.walk() if isinstance(op, MoveOp) and op.loads)
    return {str(op.buffer.get("role")): op for op in found}


def kinds(program: ProgramOp) -> dict[str, str]:
    """The roles of late loads, and which run they stand in."""
    return {k: op.late.data for k, op in loads(program).items() if op.late is not None}


def test_residuals_come_with_the_last_part_of_a_reduction() -> None:
    of = kernel()
    two = {"input": 2, "weight": 2, "bias": 2}
    program = tile(of, schedule(of, two, ("co", "ow", "ci"), 32), MACHINE)
    assert kinds(program) == {"residual": "last"}
    queues = Queues(Order(program))
    found = {role: queues.position(op) for role, op in loads(program).items()}
    # Four parts of two loads each and a residual.
    np.testing.assert_array_equal(found["residual"], 8 + 9 * np.arange(16))
    np.testing.assert_array_equal(found["weight"][:5], [1, 3, 5, 7, 10])


def test_single_slots_come_behind_the_loads_of_loops_within() -> None:
    """One input for all channels: the first weights need not wait for it."""
    of = kernel()
    two = {"weight": 2, "bias": 2, "residual": 2, "output": 2}
    program = tile(of, schedule(of, two, ("ow", "co"), 128), MACHINE)
    assert kinds(program) == {"input": "first"}
    queues = Queues(Order(program))
    found = {role: queues.position(op) for role, op in loads(program).items()}
    np.testing.assert_array_equal(found["input"], 2 + 9 * np.arange(4))
    assert (found["input"] > found["weight"][::4]).all()
    assert (found["input"] > found["residual"][::4]).all()


@pytest.mark.parametrize("order", [("co", "ow", "ci"), ("ow", "co", "ci")])
def test_loads_with_several_slots_are_left_alone(order: tuple[str, ...]) -> None:
    of = kernel()
    roles: tuple[str, ...] = ("input", "weight", "bias", "residual", "output")
    two: dict[str, int] = dict.fromkeys(roles, 2)
    assert kinds(tile(of, schedule(of, two, order, 32), MACHINE)) == {}


def test_machines_that_do_not_ask_for_it_load_in_the_order_of_the_text() -> None:
    of = kernel()
    assert kinds(tile(of, schedule(of, {"input": 2}, ("co", "ow", "ci"), 32), EAGER)) == {}


def test_deep_layers_with_a_residual_gain() -> None:
    """Of 512 to 2048 channels, as in ResNet-50; the cost says what the simulator finds."""
    of = kernel(co=2048, ci=512)
    late, eager = (Planner(one, timer=timer(one)).plan(of) for one in (MACHINE, EAGER))
    assert late.cycles < 0.97 * eager.cycles
    assert abs(late.predicted_cycles / late.cycles - 1) < 0.02
