"""One dim for all pixels of a convolution, where windows are one pixel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder
from tilewright.planning import Budget, Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.join_pixels import join_pixels
from tilewright.targets.base import find_target
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine
from tilewright.targets.cambricon.timer import timer

CAMBRICON = machine()


def convolution(
    kernel: int = 1, stride: int = 1, size: tuple[int, int] = (6, 7), co: int = 40, ci: int = 48
) -> Case:
    """A convolution with bias, residual and ReLU."""
    build = KernelBuilder(co + ci)
    shape = (1, co, *((n - kernel) // stride + 1 for n in size))
    y = build.op(
        "conv",
        build.image(1, ci, *size),
        build.operand((co, ci, kernel, kernel), 10, layout="OHWI"),
        build.operand((co,), 18, bits=32),
        strides=(stride, stride),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        group=1,
    )
    y = build.op("relu", build.op("add", y, build.image(*shape, fraction=9)))
    return build.finish(build.op("requantise", y, result=(16, 8)))


def joined(case: Case) -> Case:
    """The same over one row of pixels."""
    kernel = join_pixels(case.kernel, CAMBRICON)
    shapes = {operand.name: operand.shape for operand in kernel.operands}
    operands = {name: data.reshape(shapes[name]) for name, data in case.operands.items()}
    return replace(
        case,
        kernel=kernel,
        operands=operands,
        expected=case.expected.reshape(kernel.output.shape),
    )


def test_windows_of_one_pixel_are_joined() -> None:
    kernel = join_pixels(convolution().kernel, CAMBRICON)
    assert kernel.anchor.extents["oh"] == 1
    assert kernel.anchor.extents["ow"] == 42
    roles = {one.role: one.shape for one in kernel.operands}
    assert roles["input"] == (1, 48, 1, 42)
    assert roles["residual"] == roles["output"] == (1, 40, 1, 42)
    assert all(stage.extents["ow"] == 42 for stage in kernel.stages)
    assert join_pixels(kernel, CAMBRICON) == kernel


def strides(kernel: Kernel, row: int, pixel: int) -> dict[str, tuple[int, ...]]:
    """Strides of the physical axes of all images, whose rows lie so far apart."""
    return {
        one.name: (1 << 20, row, pixel, 1)
        for one in kernel.operands
        if len(one.shape) == 4 and one.role != "weight"
    }


@pytest.mark.parametrize(("row", "joins"), [(7 * 64, True), (8 * 64, False)])
def test_rows_lie_one_behind_the_other(row: int, joins: bool) -> None:
    """Pixels may be part of wider ones; rows that are part of wider ones lie apart."""
    kernel = convolution().kernel
    found = join_pixels(kernel, CAMBRICON, strides(kernel, row, 64))
    assert (found is not kernel) == joins


@pytest.mark.parametrize("case", [convolution(3), convolution(1, 2), convolution(size=(1, 7))])
def test_other_windows_are_left_alone(case: Case) -> None:
    assert join_pixels(case.kernel, CAMBRICON) is case.kernel


@pytest.mark.parametrize("name", ["cpu", "shidiannao"])
def test_other_machines_tell_rows_apart(name: str) -> None:
    kernel = convolution().kernel
    assert join_pixels(kernel, find_target(name).machine()) is kernel


def test_machines_that_count_pixels_take_any_number_of_them() -> None:
    """Of 7 x 7 pixels tiles of 17, which no rows give."""
    described = find_target("cambricon-x").machine()
    kernel = join_pixels(convolution(size=(7, 7)).kernel, described)
    assert kernel.anchor.extents["ow"] == 49
    deep = convolution(size=(7, 7), co=512, ci=512).kernel
    rows = Planner(described).plan(deep)
    pixels = Planner(described).plan(join_pixels(deep, described))
    assert pixels.predicted_cycles < 0.98 * rows.predicted_cycles


@pytest.mark.few(12)
@pytest.mark.parametrize("pixels", [1, 5, 8, 10])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(("co", "ci"), [(40, 48), (8, 16), (64, 200)])
def test_tiles_begin_in_the_middle_of_a_row(co: int, ci: int, number: int, pixels: int) -> None:
    """Bit for bit, with batches that divide tiles and with others."""
    case = joined(convolution(co=co, ci=ci))
    tile = {**case.kernel.anchor.extents, "ow": pixels}
    described = machine(CONFIGURATIONS[number])
    if described.name == "cambricon-s":
        tile["co"] = 8
    slots = tuple(
        (o.name, 1 if o.role in ("residual", "output") else 2) for o in case.kernel.operands
    )
    schedule = Schedule("conv", (Level("vsm", tuple(tile.items()), ("co", "ow")),), slots)
    found, _, _ = run_case(case, schedule, described)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.slow
def test_tiles_fill_the_memory() -> None:
    """Of 64 to 256 channels with a residual: tiles of rows wait for their transfers."""
    case = convolution(size=(56, 56), co=256, ci=64)
    timing = timer(CAMBRICON)
    rows = Planner(CAMBRICON, timer=timing).plan(case.kernel)
    # What six schedules of each kind reach, more of them reach too.
    joint = join_pixels(case.kernel, CAMBRICON)
    pixels = Planner(CAMBRICON, timer=timing, budget=Budget(timed=6)).plan(joint)
    assert pixels.granule_bound == rows.granule_bound == 50176
    assert abs(pixels.predicted_cycles / pixels.cycles - 1) < 0.02
    assert pixels.cycles < 1.1 * 50176 < 1.2 * 50176 < rows.cycles


@pytest.mark.parametrize(
    ("sides", "row"),
    [((14, 14), True), ((7, 7), False), ((5, 5), True), ((3, 7), False), ((8, 1), True)],
)
def test_cpes_get_parts_of_rows_and_columns_where_a_row_has_no_eighths(
    sides: tuple[int, int], row: bool
) -> None:
    own = find_target("sunway").machine().own
    assert own.joins_pixels(*sides) == row
