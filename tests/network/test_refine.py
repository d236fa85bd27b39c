"""Schedules that suit a kernel's neighbours: chosen by what kernels take in a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.compiler import pipeline as driver
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.compiler.state import CompilationState
from tilewright.planning import Plan
from tilewright.planning.schedule import Schedule
from tilewright.runtime import Executable
from tilewright.targets.cambricon.target import CambriconTarget

VALUES = {"memory.vsm.bytes": 16 << 10, "memory.msm.bytes": 192 << 10}


def chain(path: Path, channels: Sequence[int], size: int, kernels: Sequence[int]) -> Path:
    """Convolutions one behind the other."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    for number, (deep, out, kernel) in enumerate(
        zip(channels[:-1], channels[1:], kernels, strict=True)
    ):
        shape = out, deep, kernel, kernel
        values = random.normal(0, deep**-0.5 / kernel, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        names = [f"v{number}", f"w{number}"]
        nodes.append(helper.make_node("Conv", names, [f"a{number}"], pads=[kernel // 2] * 4))
        nodes.append(helper.make_node("Relu", [f"a{number}"], [f"v{number + 1}"]))
    shape = 1, channels[0], size, size
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"v{len(kernels)}", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


Timed = list[tuple[CompiledKernel, ...]]


def planned(
    path: Path, monkeypatch: pytest.MonkeyPatch, prefers: RunTimer | None
) -> CompilationState:
    """The state up to plans, no values held."""
    monkeypatch.setattr(CambriconTarget, "run_timer", lambda *_: prefers)
    monkeypatch.setattr(driver, "hold_values", lambda *_: {})
    monkeypatch.setattr(driver, "hold_weights", lambda *_: {})
    target, machine = resolve("cambricon", values=VALUES)
    return run_pipeline(path, target, machine, until="plan")


@pytest.mark.slow
def test_kernels_are_timed_in_rows_of_four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two before and one behind; the same row, its names aside, is timed once."""
    path = chain(tmp_path / "net.onnx", [96] * 7, 14, [3] * 6)
    timed: Timed = []

    def prefers(kernels: Sequence[CompiledKernel]) -> float:
        timed.append(tuple(kernels))
        return float(len(timed))

    state = planned(path, monkeypatch, prefers)
    plans = state.plans
    assert any(plan.near for plan in plans.values())
    symbols = [*plans]
    for kernels in timed:
        found = [one.kernel.symbol for one in kernels]
        at = symbols.index(found[0])
        assert found == symbols[at : at + len(found)]
        assert 2 <= len(found) <= 4
    # The first plan of each is the least here: nothing is chosen anew.
    alone = planned(path, monkeypatch, None).plans
    assert {s: p.schedule for s, p in plans.items()} == {s: p.schedule for s, p in alone.items()}
    ways = [tuple(one.schedule for one in kernels) for kernels in timed]
    assert len(set(ways)) == len(ways)
    assert len(timed) < sum(1 + len(plan.near) for plan in plans.values())


@pytest.mark.slow
def test_what_is_fastest_between_neighbours_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = chain(tmp_path / "net.onnx", [96] * 4, 14, [3] * 3)
    alone = planned(path, monkeypatch, None).plans
    liked: dict[str, Plan] = {s: p.near[-1] for s, p in alone.items() if p.near}
    assert liked
    wanted: dict[str, Schedule] = {symbol: plan.schedule for symbol, plan in liked.items()}

    def prefers(kernels: Sequence[CompiledKernel]) -> float:
        return -float(sum(one.schedule == wanted.get(one.kernel.symbol) for one in kernels))

    state = planned(path, monkeypatch, prefers)
    for one in state.kernels:
        if one.schedule is None:
            continue
        symbol = one.kernel.symbol
        plan = liked.get(symbol) or alone[symbol]
        assert one.schedule == plan.schedule
        assert state.plans[symbol].timed_cycles == plan.timed_cycles


def ran(path: Path, folder: Path) -> Executable:
    made = tilewright.compile(path, "cambricon", directory=folder)
    (info,) = made.inputs
    size = [int(n) for n in info.shape]
    sample = {"v0": np.random.default_rng(1).normal(0, 1, size).astype(np.float32)}
    check = made.check(sample, made.run(sample))
    assert check.equal and check.exact and check.mismatches == 0
    return made


@pytest.mark.slow
def test_bottlenecks_are_faster_in_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of ResNet-50: what is fastest alone leaves the weights behind it no time to load."""
    path = chain(tmp_path / "net.onnx", [256, 1024, 256, 256, 1024, 256, 256], 14, [1, 1, 3] * 2)
    cycles = ran(path, tmp_path / "beside").summary()["cycles"]
    monkeypatch.setattr(driver, "beside_neighbours", lambda *_: dict[str, Any]())
    assert cycles < ran(path, tmp_path / "alone").summary()["cycles"]
