"""Pooling of every kind of window, with and without ReLU: words equal the graph bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine
from tilewright.targets.cambricon.timer import timer


def pooled(seed: int, kind: str, *, relu: bool, most: int = 5) -> Case:
    """Windows that overlap or not, cut off at any side, of few channels or many."""
    build = KernelBuilder(seed)
    pick = build.random
    kernel = [int(n) for n in pick.integers(1, most + 1, 2)]
    stride = [int(n) for n in pick.integers(1, 4, 2)]
    pads = [int(pick.integers(0, kernel[i % 2])) for i in range(4)]
    size = [int(kernel[i] + pick.integers(0, 24)) for i in range(2)]
    x = build.operand((1, int(pick.choice([3, 6, 20, 32, 70])), *size), layout="NHWC")
    attributes: dict[str, Any] = {"kernel": kernel, "strides": stride, "pads": pads}
    if kind == "average_pool":
        attributes["counted"] = pads if pick.random() < 0.5 else [0, 0, 0, 0]
    y = build.op(kind, x, **attributes)
    return build.finish(build.op("relu", y) if relu else y)


@pytest.mark.few(10)
@pytest.mark.parametrize("kind", ["max_pool", "average_pool"])
@pytest.mark.parametrize("seed", [*range(12), 119])
def test_windows_of_all_kinds(seed: int, kind: str) -> None:
    case = pooled(seed, kind, relu=seed % 2 == 1)
    described = machine(CONFIGURATIONS[seed % 3])
    found, _, _ = run_case(case, Planner(described).plan(case.kernel).schedule, described)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("rows", [1, 3])
def test_tiles_of_rows(rows: int) -> None:
    case = pooled(5, "average_pool", relu=True)
    tile = {dim.name: dim.extent for dim in case.kernel.anchor.dims} | {"oh": rows, "n": 1}
    schedule = Schedule("pool", (Level("vsm", tuple(tile.items()), ("n", "oh")),))
    found, _, _ = run_case(case, schedule, machine())
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("rows", [1, 2, 1 << 20])
@pytest.mark.parametrize("seed", but_fast(range(8), range(3)))
def test_windows_of_images_in_the_matrix_scratchpad(seed: int, rows: int) -> None:
    """In one tile, and in several whose images take turns in two slots."""
    case = pooled(seed, "max_pool", relu=seed % 2 == 1, most=4)
    described = machine(CONFIGURATIONS[seed % 3])
    tile = {dim.name: dim.extent for dim in case.kernel.anchor.dims}
    tile["oh"] = min(tile["oh"], rows)
    names = tuple(operand.name for operand in case.kernel.operands)
    several = rows < case.kernel.anchor.extents["oh"]
    schedule = Schedule(
        "matrix_pool",
        (Level("vsm", tuple(tile.items()), ("n", "oh")),),
        tuple((name, 1 + several) for name in names),
    )
    found, result, _ = run_case(case, schedule, described)
    np.testing.assert_array_equal(found, case.expected)
    images, _, high, _ = case.expected.shape
    assert result.counts["VSTORE"] == images * -(-high // tile["oh"])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("seed", [2, 5, 6])
def test_a_result_stays_while_its_images_come(seed: int, rows: int) -> None:
    """One tile of the result, of which each tile of images gives some rows."""
    case = pooled(seed, "max_pool", relu=seed % 2 == 1, most=4)
    whole = {dim.name: dim.extent for dim in case.kernel.anchor.dims}
    assert whole["oh"] > rows
    part = whole | {"oh": rows}
    levels = (
        Level("vsm", tuple(whole.items()), ()),
        Level("msm", tuple(part.items()), ("oh",)),
    )
    buffers = tuple((operand.name, 2) for operand in case.kernel.inputs)
    schedule = Schedule("matrix_pool", levels, buffers)
    found, _, _ = run_case(case, schedule, machine(CONFIGURATIONS[seed % 3]))
    np.testing.assert_array_equal(found, case.expected)


def test_the_matrix_scratchpad_compares_all_numbers_of_16_bits() -> None:
    """Differences of 17 bits saturate."""
    build = KernelBuilder(0)
    numbers = np.array([-32768, -32767, -1, 0, 1, 32766, 32767], np.int16)
    x = build.operand((1, 1, 2, 49), layout="NHWC")
    pairs = np.stack(np.meshgrid(numbers, numbers)).reshape(1, 1, 2, 49)
    build.arguments[0] = build.arguments[0][0], pairs
    case = build.finish(build.op("max_pool", x, kernel=[2, 1], strides=[2, 1], pads=[0] * 4))
    tile = tuple((dim.name, dim.extent) for dim in case.kernel.anchor.dims)
    schedule = Schedule("matrix_pool", (Level("vsm", tile, ("n",)),))
    found, _, _ = run_case(case, schedule, machine())
    np.testing.assert_array_equal(found, case.expected)
    assert sorted(case.expected.ravel()) == sorted(np.maximum.outer(numbers, numbers).ravel())


def test_images_of_many_rows_are_pooled_in_few_transfers() -> None:
    """The first pool of VGG: its bytes pass main memory in 62,720 cycles."""
    build = KernelBuilder(0)
    x = build.operand((1, 64, 224, 224), layout="NHWC")
    case = build.finish(build.op("max_pool", x, kernel=[2, 2], strides=[2, 2], pads=[0] * 4))
    described = machine()
    found = Planner(described, timer=timer(described)).plan(case.kernel)
    assert found.schedule.primitive == "matrix_pool"
    assert found.cycles < 1.2 * 62720


@pytest.mark.parametrize(("channels", "extent", "most"), [(32, 33, 1880), (64, 57, 5760)])
def test_results_of_few_channels(channels: int, extent: int, most: int) -> None:
    build = KernelBuilder(0)
    x = build.operand((1, channels, extent, extent), layout="NHWC")
    case = build.finish(build.op("max_pool", x, kernel=[3, 3], strides=[2, 2], pads=[0] * 4))
    described = machine()
    found = Planner(described, timer=timer(described)).plan(case.kernel)
    assert found.cycles < most
    result, _, _ = run_case(case, found.schedule, described)
    np.testing.assert_array_equal(result, case.expected)
