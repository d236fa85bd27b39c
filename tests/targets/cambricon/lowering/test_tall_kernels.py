"""Kernels of more rows than are written out, whose products are a loop: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.lowering.windows import UNROLLED
from tilewright.targets.cambricon.machine import MACHINE


def conv(rows: int, pad: int) -> Case:
    build = KernelBuilder(rows)
    y = build.op(
        "conv",
        build.image(1, 64, rows + 6, 24),
        build.operand((32, 64, rows, 3), 10, layout="OHWI"),
        build.operand((32,), 18, bits=32),
        strides=(1, 1),
        pads=(pad, 0, pad, 0),
        dilations=(1, 1),
        group=1,
    )
    return build.finish(build.op("requantise", build.op("relu", y), result=(16, 8)))


def schedule(case: Case) -> Schedule:
    tile = {**case.kernel.anchor.extents, "oh": 2}
    level = Level("vsm", tuple(tile.items()), ("oh",))
    return Schedule("conv", (level,), tuple((one.name, 1) for one in case.kernel.operands))


@pytest.mark.parametrize("rows", [UNROLLED, UNROLLED + 1, 11])
@pytest.mark.parametrize("pad", [0, 2])
def test_kernels_of_many_rows(rows: int, pad: int) -> None:
    described = MACHINE.with_values({"memory.vsm.bytes": 256 << 10})
    case = conv(rows, pad)
    found, _, _ = run_case(case, schedule(case), described)
    np.testing.assert_array_equal(found, case.expected)
