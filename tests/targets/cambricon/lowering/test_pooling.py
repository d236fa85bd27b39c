"""Pooling of every kind of window, with and without ReLU: words equal the graph bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.planning import plan
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine


def pooled(seed: int, kind: str, *, relu: bool) -> Case:
    """Windows that overlap or not, cut off at any side, of few channels or many."""
    build = KernelBuilder(seed)
    pick = build.random
    kernel = [int(n) for n in pick.integers(1, 6, 2)]
    stride = [int(n) for n in pick.integers(1, 4, 2)]
    pads = [int(pick.integers(0, kernel[i % 2])) for i in range(4)]
    size = [int(kernel[i] + pick.integers(0, 24)) for i in range(2)]
    x = build.operand((1, int(pick.choice([3, 6, 20, 32, 70])), *size), layout="NHWC")
    attributes = {"kernel": kernel, "strides": stride, "pads": pads}
    if kind == "average_pool":
        attributes["counted"] = pads if pick.random() < 0.5 else [0, 0, 0, 0]
    y = build.op(kind, x, **attributes)
    return build.finish(build.op("relu", y) if relu else y)


@pytest.mark.parametrize("kind", ["max_pool", "average_pool"])
@pytest.mark.parametrize("seed", [*range(12), 119])
def test_windows_of_all_kinds(seed: int, kind: str) -> None:
    case = pooled(seed, kind, relu=seed % 2 == 1)
    described = machine(CONFIGURATIONS[seed % 3])
    found, _, _ = run_case(case, plan(case.kernel, described).schedule, described)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("rows", [1, 3])
def test_tiles_of_rows(rows: int) -> None:
    case = pooled(5, "average_pool", relu=True)
    tile = {dim.name: dim.extent for dim in case.kernel.anchor.dims} | {"oh": rows, "n": 1}
    schedule = Schedule("pool", (Level("vsm", tuple(tile.items()), ("n", "oh")),))
    found, _, _ = run_case(case, schedule, machine())
    np.testing.assert_array_equal(found, case.expected)
