"""Blocks of tensors that are parts of larger ones, against addresses enumerated one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from tests.planning import planning_kernels as kernels
from tilewright.planning.cost.limits import most_blocks
from tilewright.planning.domain import Affine, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.footprint import run_elements
from tilewright.planning.space.parts import as_parts, is_dense
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X

LAYOUTS = ("NHWC", "NCHW", "NCHW4c", "HWNC")


def part(seed: int) -> tuple[Operand, tuple[int, ...], tuple[int, ...]]:
    """A tensor that is a part of a larger one along some axes; its strides, and a box of it."""
    pick = np.random.default_rng(seed)
    layout = Layout.parse(text := LAYOUTS[seed % len(LAYOUTS)], 4)
    shape = [int(pick.integers(1, 3)), 4 * int(pick.integers(1, 4)), *pick.integers(1, 5, 2)]
    more = [4 * int(pick.integers(0, 2)), 4 * int(pick.integers(0, 3)), *pick.integers(0, 3, 2)]
    shape = [int(extent) for extent in shape]
    whole = [extent + int(extra) for extent, extra in zip(shape, more, strict=True)]
    strides = layout.strides(whole)
    box = [int(pick.integers(1, extent + 1)) for extent in shape]
    box[1] = box[1] if "4c" not in text else -(-box[1] // 4) * 4
    access = tuple(Affine(((f"d{axis}", 1),)) for axis in range(4))
    operand = Operand("x", tuple(shape), access, layout=text)
    return operand, strides, tuple(box)


@pytest.mark.parametrize("seed", range(60))
def test_runs_are_those_of_addresses(seed: int) -> None:
    """Of equal runs of as many elements as are said, a box has no fewer than it has elements."""
    operand, strides, box = part(seed)
    layout = Layout.parse(operand.layout, 4)
    own = () if is_dense(operand, strides) else strides
    places = sorted(
        layout.offset(index, operand.shape, strides) for index in product(*map(range, box))
    )
    breaks = sum(after != before + 1 for before, after in pairwise(places))
    run = run_elements(replace(operand, strides=own), [np.array([length]) for length in box])
    # Runs that happen to touch, as those of a box of one row, are counted apart or together.
    assert len(places) % int(run[0]) == 0
    assert breaks + 1 <= len(places) // int(run[0])
    steps = [b - a for a, b in pairwise(places[:: int(run[0])])]
    starts = {places[n + int(run[0]) - 1] - places[n] for n in range(0, len(places), int(run[0]))}
    assert starts == {int(run[0]) - 1} and all(step >= int(run[0]) for step in steps)
    if all(length < extent for length, extent in zip(box, operand.shape, strict=True)):
        assert breaks + 1 == len(places) // int(run[0])


@pytest.mark.parametrize("seed", range(20))
def test_dense_is_what_a_tensor_of_its_own_is(seed: int) -> None:
    operand, strides, _ = part(seed)
    layout = Layout.parse(operand.layout, 4)
    places = {
        layout.offset(index, operand.shape, strides)
        for index in product(*map(range, operand.shape))
    }
    assert is_dense(operand, layout.strides(operand.shape))
    assert is_dense(operand, strides) == (max(places) + 1 == len(places))


def test_only_machines_whose_moves_price_blocks_hear_of_gaps() -> None:
    kernel = kernels.conv(16, 32, 8)
    strides = {"x": (8192, 32, 256, 8)}
    assert as_parts(kernel, strides, CAMBRICON_X) is kernel
    told = as_parts(kernel, strides, MACHINE)
    assert [o.name for o in told.operands if o.strides] == ["x"]
    dense = Layout.parse("", 4).strides(kernel.inputs[0].shape)
    assert as_parts(kernel, {"x": dense}, MACHINE) == kernel


@pytest.mark.parametrize(("rows", "total"), [(4, 24), (8, 24), (2, 17)])
def test_the_operand_of_the_most_blocks_is_named(rows: int, total: int) -> None:
    """Results of 16 channels in a tensor of more: a block for each pixel."""
    kernel = kernels.conv(16, 16, 8, 1)
    laid = {o.name: "NHWC" for o in kernel.operands if len(o.shape) == 4 and o.role != "weight"}
    stages = tuple(
        replace(
            stage,
            inputs=tuple(replace(o, layout=laid.get(o.name, o.layout)) for o in stage.inputs),
            output=replace(stage.output, layout="NHWC"),
        )
        for stage in kernel.stages
    )
    kernel = replace(kernel, stages=stages)
    tile = {**kernel.anchor.extents, "oh": rows}
    schedule = Schedule("conv", (Level("vsm", tuple(tile.items()), ("oh",)),))
    assert most_blocks(kernel, MACHINE, schedule) is None
    strides = {"y": (64 * total, 8 * total, total, 1)}
    blocks = most_blocks(as_parts(kernel, strides, MACHINE), MACHINE, schedule)
    assert blocks is not None
    assert (blocks.operand, blocks.count, blocks.bytes) == ("y", 64, 32)
    assert blocks.cycles == 6400
    assert "64 blocks of 32 bytes" in str(blocks)
