"""Means of one window in the matrix scratchpad: words equal the graph bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine
from tilewright.targets.cambricon.planning.channel_blocks import by_channel_blocks, layout_of_blocks
from tilewright.targets.cambricon.timer import timer


def mean(
    channels: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    counted: tuple[int, int, int, int] = (0, 0, 0, 0),
    images: int = 1,
    relu: bool = False,
) -> Case:
    """One window of an image, which may reach beyond it, or leave some of it out."""
    build = KernelBuilder(channels + sum(size))
    x = build.operand((images, channels, *size), layout="NHWC")
    y = build.op("average_pool", x, kernel=kernel, strides=(9, 9), pads=pads, counted=counted)
    return build.finish(build.op("relu", y) if relu else y)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    "case",
    [
        mean(70, (7, 7), (7, 7)),
        mean(32, (4, 9), (4, 9), relu=True),
        mean(3, (8, 6), (7, 5), images=2),
        mean(40, (3, 5), (5, 6), (1, 0, 1, 1), relu=True),
        mean(33, (3, 5), (5, 6), (1, 0, 1, 1), (1, 0, 0, 1)),
        mean(20, (1, 1), (1, 1), images=3),
    ],
    ids=["all lanes", "relu", "part", "padding", "counted padding", "one pixel"],
)
def test_means_of_one_window(case: Case, number: int) -> None:
    described = machine(CONFIGURATIONS[number])
    tile = {**case.kernel.anchor.extents, "n": 1}
    several = case.kernel.anchor.extents["n"] > 1
    schedule = Schedule(
        "matrix_mean",
        (Level("msm", tuple(tile.items()), ("n",)),),
        tuple((operand.name, 1 + several) for operand in case.kernel.operands),
    )
    found, _, _ = run_case(case, schedule, described)
    np.testing.assert_array_equal(found, case.expected)
    assert len(np.unique(found)) > 1


def test_sums_that_exceed_16_bits() -> None:
    """256 pixels of the greatest and of the least numbers."""
    build = KernelBuilder(0)
    x = build.operand((1, 2, 16, 16), layout="NHWC")
    numbers = np.full((1, 2, 16, 16), 32767, np.int16)
    numbers[:, 1] = -32768
    build.arguments[0] = build.arguments[0][0], numbers
    y = build.op("average_pool", x, kernel=(16, 16), strides=(1, 1), pads=(0,) * 4)
    case = build.finish(y)
    tile = tuple(case.kernel.anchor.extents.items())
    found, _, _ = run_case(case, Schedule("matrix_mean", (Level("msm", tile, ()),)), machine())
    assert found.ravel().tolist() == [32767, -32768]


def in_blocks(case: Case, size: int) -> Case:
    """The same mean of an image whose channels lie in blocks of so many."""
    (stage, *others) = case.kernel.stages
    (image,) = stage.inputs
    blocked = replace(stage, inputs=(replace(image, layout=layout_of_blocks(size)),))
    kernel = by_channel_blocks(replace(case.kernel, stages=(blocked, *others)))
    data = case.operands[image.name]
    count, channels, *pixels = data.shape
    parts = data.reshape(count, channels // size, size, *pixels).transpose(0, 1, 3, 4, 2)
    operands = {**case.operands, image.name: np.ascontiguousarray(parts)}
    return replace(case, kernel=kernel, operands=operands)


@pytest.mark.parametrize("several", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "case",
    [mean(160, (7, 7), (7, 7)), mean(160, (8, 6), (7, 5), relu=True)],
    ids=["whole", "part"],
)
def test_several_blocks_of_channels_come_at_once(case: Case, several: int) -> None:
    """Blocks that the tiles share evenly, or not."""
    blocked = in_blocks(case, 32)
    tile = {**blocked.kernel.anchor.extents, "g": several}
    slots = tuple((operand.name, 2) for operand in blocked.kernel.operands)
    schedule = Schedule("matrix_mean", (Level("msm", tuple(tile.items()), ("g",)),), slots)
    found, result, _ = run_case(blocked, schedule, machine())
    np.testing.assert_array_equal(found, case.expected)
    # Where windows leave columns out, each of their 7 rows lies apart.
    partly = case.kernel.inputs[0].shape[2:] != (7, 7)
    assert result.counts["MLOAD"] == (5 * 7 if partly else -(-5 // several))


def test_the_planner_takes_them_for_large_images() -> None:
    """7 x 7 pixels of 2048 channels pass main memory in 1568 cycles."""
    described, case = machine(), mean(2048, (7, 7), (7, 7))
    found = Planner(described, timer=timer(described)).plan(case.kernel)
    assert found.schedule.primitive == "matrix_mean"
    assert found.cycles < 1.5 * 1568
