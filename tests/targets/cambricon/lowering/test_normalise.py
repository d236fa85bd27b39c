"""LRN over windows of any size, on channels that fit the temporaries and that do not."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.planning import Planner
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine


@pytest.mark.parametrize("channels", [7, 96, 150])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 7])
def test_windows_of_any_size(window: int, channels: int) -> None:
    build = KernelBuilder(window)
    x = build.operand((1, channels, 2, 3), layout="NHWC")
    y = build.op("lrn", x, size=window, alpha=1e-2, beta=0.75, bias=1.5, result=(16, 9))
    case = build.finish(y)
    described = machine(CONFIGURATIONS[window % 3])
    found, _, _ = run_case(case, Planner(described).plan(case.kernel).schedule, described)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 8])
def test_gradients_of_windows_of_any_size(window: int) -> None:
    build = KernelBuilder(window)
    x, dy = (build.operand((1, 45, 2, 3), point, layout="NHWC") for point in (12, 9 + window))
    settings = {"size": window, "alpha": (1e-4, 1e-2, 2.0)[window % 3], "beta": 0.75, "bias": 1.5}
    case = build.finish(build.op("lrn_gradient", x, dy, result=(16, 11), **settings))
    described = machine(CONFIGURATIONS[window % 3])
    found, _, _ = run_case(case, Planner(described).plan(case.kernel).schedule, described)
    np.testing.assert_array_equal(found, case.expected)
