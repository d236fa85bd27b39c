"""The planner's timer says what the words take that a package holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import CASES, KernelBuilder, random_case

import tilewright
from tilewright.compiler.pipeline import run_pipeline
from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cambricon import TARGET
from tilewright.targets.cambricon.machine import CONFIGURATIONS, MACHINE, machine
from tilewright.targets.cambricon.timer import timer


@pytest.mark.parametrize("seed", range(len(CASES)))
def test_words_take_the_same_time_with_values_and_without(seed: int) -> None:
    case = random_case(seed)
    described = machine(CONFIGURATIONS[seed % 3])
    try:
        schedule = Planner(described).plan(case.kernel).schedule
    except TilewrightError as error:
        pytest.skip(error.problems[0].code)
    clock = timer(described, prefetched=False)
    try:
        _, result, _ = run_case(case, schedule, described)
    except TilewrightError as error:
        with pytest.raises(TilewrightError, match=re.escape(error.problems[0].code)):
            clock(case.kernel, schedule)
    else:
        assert clock(case.kernel, schedule) == result.cycles


@pytest.mark.slow
def test_first_weights_come_while_a_kernel_before_computes(tmp_path: Path) -> None:
    """A second convolution takes what the timer says, and not its first load of weights, too."""
    random = np.random.default_rng(1)
    weights = [random.normal(0, 0.05, (128, 128, 3, 3)).astype(np.float32) for _ in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["y"], "first", pads=[1] * 4),
        helper.make_node("Conv", ["y", "w1"], ["z"], "second", pads=[1] * 4),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 128, 14, 14)) for n in "xz"]
    inits = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "two.onnx")
    made = tilewright.compile(tmp_path / "two.onnx", "cambricon", directory=tmp_path / "two")
    made.run({"x": random.normal(0, 1, (1, 128, 14, 14)).astype(np.float32)})
    second = next(k for k in made.summary()["kernels"] if k["nodes"][:1] == ["second"])
    planned = run_pipeline(tmp_path / "two.onnx", TARGET, MACHINE, until="plan", hold=False).kernels
    item = next(one for one in planned if one.kernel.nodes[:1] == ("second",))
    assert item.schedule is not None
    there, alone = (timer(MACHINE, prefetched=b)(item.kernel, item.schedule) for b in (True, False))
    load = 100 + 2 * weights[0].size / 128
    assert alone - there > 0.8 * load
    assert abs(second["cycles"] - there) < 0.2 * load


def test_weights_that_are_computed_are_timed_as_they_lie() -> None:
    """Columns of a matrix whose rows lie side by side are loaded row by row."""
    build = KernelBuilder(1)
    y = build.op("matmul", build.operand((1, 49), 0), build.operand((49, 2048), 8))
    kernel = build.finish(build.op("requantise", y, result=(16, 8))).kernel
    anchor = kernel.anchor
    computed = (anchor.inputs[0], replace(anchor.inputs[1], computed=True))
    stages = (replace(anchor, inputs=computed), *kernel.stages[1:])
    tile = (("n", 1), ("co", 512), ("ci", 49))
    schedule = Schedule("matmul", (Level("vsm", tile, ("co",)),), ())
    times = [timer(MACHINE)(one, schedule) for one in (kernel, replace(kernel, stages=stages))]
    # Four tiles of 49 rows, each with the latency of a transfer, but for one of each tile.
    assert times[1] - times[0] >= 4 * 48 * 100
