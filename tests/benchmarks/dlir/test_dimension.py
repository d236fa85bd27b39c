"""Dimensions read off tile programs: their segments are the boxes that the buffers hold."""

from __future__ import annotations

import pytest
from benchmarks.papers.dlir.passes import Dimension, dimensions_of

from tests.targets.generic.kernel_cases import random_case
from tilewright.planning import Planner
from tilewright.planning.planners.greedy import Greedy
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.tile.boxes import box_columns
from tilewright.tile.dialect import BufferOp
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile

NARROW = MACHINE.with_values({"memory.nbin.bytes": 2048, "memory.nbout.bytes": 2048})


def test_the_thesis_example() -> None:
    """Figure 5.5: from 0, length 10, steps of 2, four at a time."""
    found = list(Dimension("i", 0, 10, 2, 4).segments())
    assert found == [(0, 4), (2, 4), (4, 4), (6, 4)]
    assert list(Dimension("i", 0, 10, 0, 10).segments()) == [(0, 10)]


@pytest.mark.parametrize("seed", range(8))
def test_segments_are_boxes(seed: int) -> None:
    case = random_case(seed)
    program = tile(case.kernel, Planner(NARROW, search=Greedy()).plan(case.kernel).schedule, NARROW)
    order, seen = Order(program), 0
    for buffer in program.walk():
        if not isinstance(buffer, BufferOp):
            continue
        block = buffer.parent_block()
        assert block is not None
        boxes = box_columns(buffer.window.data, buffer.tensor_shape, order.block(block))
        for axis, dimension in enumerate(dimensions_of(buffer)):
            if dimension is not None:
                mine = zip(boxes.start[axis].tolist(), boxes.size[axis].tolist(), strict=True)
                assert set(dimension.segments()) == set(mine)
                seen += dimension.stride > 0
    assert seen or seed not in (0, 1)
