"""Convolutions of groups whose pixels are gathered: bit for bit, a product for each row."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, lanes_of, machine

ORIGINAL, _, MEDIUM = map(machine, CONFIGURATIONS)


def grouped(
    ci: int, kernel: tuple[int, int], pads: tuple[int, int, int, int], size: tuple[int, int]
) -> Case:
    """Two groups of 16 output channels, with bias, residual and ReLU."""
    build = KernelBuilder(ci + sum(pads) + sum(size))
    y = build.op(
        "conv",
        build.image(1, 2 * ci, *size),
        build.operand((32, ci, *kernel), 10, layout="OHWI"),
        build.operand((32,), 18, bits=32),
        strides=(1, 1),
        pads=pads,
        dilations=(1, 1),
        group=2,
    )
    y = build.op("relu", build.op("add", y, build.image(*shape_of(y), fraction=9)))
    return build.finish(build.op("requantise", y, result=(16, 8)))


def by_groups(case: Case, rows: int) -> Schedule:
    """Tiles of some rows with both groups, whose weights come one after the other."""
    outer = {**case.kernel.anchor.extents, "oh": rows}
    levels = (
        Level("vsm", tuple(outer.items()), ("oh",)),
        Level("msm", tuple({**outer, "g": 1}.items()), ("g",)),
    )
    return Schedule("conv", levels, tuple((o.name, 2) for o in case.kernel.operands))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("described", "ci", "kernel", "pads", "size"),
    [
        (ORIGINAL, 48, (5, 5), (2, 2, 2, 2), (7, 9)),
        (ORIGINAL, 40, (3, 3), (0, 0, 0, 0), (6, 11)),
        (ORIGINAL, 48, (3, 5), (1, 2, 1, 2), (5, 3)),
        (ORIGINAL, 8, (1, 4), (0, 1, 0, 2), (4, 12)),
        (MEDIUM, 4, (5, 3), (2, 0, 2, 1), (6, 8)),
        (MEDIUM, 9, (2, 7), (0, 3, 1, 3), (6, 6)),
    ],
)
def test_gathered_pixels_take_one_product_a_row(
    described: Machine,
    ci: int,
    kernel: tuple[int, int],
    pads: tuple[int, int, int, int],
    size: tuple[int, int],
    rows: int,
) -> None:
    case = grouped(ci, kernel, pads, size)
    found, result, _ = run_case(case, by_groups(case, rows), described)
    np.testing.assert_array_equal(found, case.expected)
    lanes = lanes_of(described)
    points = kernel[0] * found.size // 16 * -(-16 // lanes)
    together, apart = -(-kernel[1] * ci // lanes), kernel[1] * -(-ci // lanes)
    assert result.busy["matrix"] <= points * together < points * apart
