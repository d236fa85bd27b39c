"""Maps whose operands repeat: words equal the graph bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.planning import Planner
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

SHAPES = (
    ((7, 1), (1, 9)),
    ((1, 5000), (3, 1)),
    ((7, 1), (7, 9)),
    ((2, 3, 1), (2, 3, 50)),
    ((2, 1, 1), (1, 3, 50)),
    ((6, 1, 1), (6, 1, 5)),
    ((3, 1), (3, 1)),
    ((1, 1), (1, 1)),
    ((2, 5, 1, 1), (2, 5, 3, 4)),
)


@pytest.mark.few(26)
@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("operation", ["add", "mul", "max"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_one_number_along_the_innermost_axis(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], operation: str, bits: int
) -> None:
    if bits == 32 and operation != "add":
        pytest.skip("products and maxima take 16 bits")
    build = KernelBuilder(len(str(shapes)) + bits)
    points = (8, 8) if operation == "max" else (8, 6)
    layout = "NHWC" if len(shapes[0]) == 4 else ""
    x = build.operand(shapes[0], points[0], bits=bits, layout=layout)
    y = build.op(operation, x, build.operand(shapes[1], points[1], layout=layout))
    if operation != "max":
        y = build.op("requantise", y, result=(16, 7))
    case, described = build.finish(y), machine(CONFIGURATIONS[bits % 3])
    found, _, _ = run_case(case, Planner(described).plan(case.kernel).schedule, described)
    np.testing.assert_array_equal(found, case.expected)
