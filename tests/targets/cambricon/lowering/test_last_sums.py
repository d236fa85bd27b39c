"""The last sums of a tile are finished before anything that they read is replaced."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.convolutions import conv, cut
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.ir.types import shape_of
from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

WHOLE, SMALL, _ = map(machine, CONFIGURATIONS)

ROOMY = SMALL.with_values({"memory.vsm.bytes": 64 << 10, "memory.msm.bytes": 256 << 10})


def with_slots(chosen: Schedule, slots: int, *names: str) -> Schedule:
    """A schedule with so many slots for some operands."""
    buffers = tuple((name, slots if name in names else n) for name, n in chosen.buffers)
    return type(chosen)(chosen.primitive, chosen.levels, buffers)


def pointwise(channels: int, deep: int, pixels: int, *, residual: bool) -> Case:
    """Windows of one pixel, of pixels in one row; with a residual, ReLU behind it."""
    build = KernelBuilder(channels + deep)
    y = build.op(
        "conv",
        build.image(1, deep, 1, pixels),
        build.operand((channels, deep, 1, 1), 10, layout="OHWI"),
        build.operand((channels,), 18, bits=32),
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        group=1,
    )
    if residual:
        y = build.op("relu", build.op("add", y, build.image(*shape_of(y), fraction=9)))
    return build.finish(build.op("requantise", y, result=(16, 8)))


@pytest.mark.parametrize("order", [("oh", "ow"), ("co", "oh", "ow"), ("oh", "ow", "co")], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (1, 4), (3, 1)])
def test_results_are_the_same(rows: int, columns: int, order: tuple[str, ...]) -> None:
    """Biases that stay, and others with each tile; tiles that are short at the edges."""
    case = conv(64, 64, (7, 5), maps=("relu",))
    tile = {"oh": rows, "ow": columns} | ({"co": 32} if "co" in order else {})
    found, _, _ = run_case(case, cut(case, tile, order), ROOMY)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("pixels", [1, 4, 7, 32])
def test_batches_of_pixels_are_the_same(pixels: int, residual: bool) -> None:
    """Residuals are replaced by results, or have slots of their own; the last tile is short."""
    case = pointwise(64, 128, 45, residual=residual)
    chosen = cut(case, {"ow": pixels}, ("ow",))
    for slots in (1, 2):
        # One slot for each is room enough for two that both share.
        one = with_slots(chosen, slots, "in3", case.kernel.output.name) if residual else chosen
        for described in (ROOMY, WHOLE):
            found, _, _ = run_case(case, one, described)
            np.testing.assert_array_equal(found, case.expected)


def test_biases_of_one_slot_are_not_replaced_too_early() -> None:
    """They are filled again behind each tile: its last sums do not wait that long."""
    case = conv(64, 64, (4, 3), maps=("relu",))
    chosen = cut(case, {"co": 32, "oh": 2}, ("oh", "co"))
    found, _, _ = run_case(case, with_slots(chosen, 1, "in2"), ROOMY)
    np.testing.assert_array_equal(found, case.expected)


def test_biases_of_two_slots_are_not_replaced_in_front_of_products() -> None:
    """The step to the next tile, which loads them, stands in front of its products."""
    case = pointwise(64, 16, 12, residual=False)
    found, _, _ = run_case(case, cut(case, {"co": 32, "ow": 4}, ("ow", "co")), WHOLE)
    np.testing.assert_array_equal(found, case.expected)


def test_copies_of_biases_are_not_replaced_too_early() -> None:
    """Those of several pixels are made anew with each tile's biases."""
    case = pointwise(512, 32, 12, residual=False)
    found, _, _ = run_case(case, cut(case, {"co": 256, "ow": 6}, ("ow", "co")), WHOLE)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.few(20)
@pytest.mark.parametrize("maps", [("relu",), ()], ids=str)
@pytest.mark.parametrize("deep", [16, 32, 64, 96])  # on 16 lanes: a pixel has 36 to 216 cycles
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (1, 4), (3, 1), (7, 2), (1, 1)])
def test_tiles_of_all_shapes(rows: int, columns: int, deep: int, maps: tuple[str, ...]) -> None:
    """Tiles that are short at the edges, or of one pixel, which is cut off in some."""
    case = conv(64, deep, (7, 5), maps=maps)
    tile = {"oh": rows, "ow": columns}
    order = tuple(dim for dim in ("oh", "ow") if tile[dim] < case.kernel.anchor.extents[dim])
    found, _, _ = run_case(case, cut(case, tile, order), ROOMY)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("size", [5, 30])
def test_batches_of_other_sizes(size: int) -> None:
    """The first batch of the next tile is another number of pixels where a row ends."""
    case = conv(32, 16, (9, 17), (1, 1), (0, 0, 0, 0), ("relu",))
    found, _, _ = run_case(case, cut(case, {"oh": 2, "ow": size % 17}, ("oh", "ow")), ROOMY)
    np.testing.assert_array_equal(found, case.expected)
