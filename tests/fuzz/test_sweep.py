"""No network is refused for one of its kernels, on any target that has a host to fall back on."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.fuzz import commands
from tests.fuzz.cases import Case
from tests.fuzz.sweep import ROOT, Sweep, accelerators, sweep
from tilewright.compiler import pipeline
from tilewright.compiler.state import CompilationState
from tilewright.errors import KernelError

NETWORKS = 6
"""On each target, of a seed of its own: 200 on all."""

FEW = {"small-npu": 7, "mixed": 8}
"""Machines, and seeds of which two networks are fast to compile and to simulate."""


def machine(name: str) -> str:
    return str(ROOT / "examples/machines" / f"{name}.toml")


def turned(*order: int) -> Case:
    """The transpose of a product's result."""
    shape = (2, 3, 4, 2, 5)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Transpose", ["r"], ["t"], name="turn", perm=order),
        helper.make_node("Relu", ["t"], ["y"], name="last"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[axis] for axis in order])
    graph = helper.make_graph(nodes, "turned", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return Case(model, {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)})


def told(swept: Sweep) -> str:
    return "\n".join(f"{case}: {verdict}" for case, verdict in swept.failures)


@pytest.mark.slow_cases(4)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(accelerators())))
def test_random_networks_are_right_or_on_the_host(number: int) -> None:
    swept = sweep([accelerators()[number]], NETWORKS, seed=100 + number)
    assert not swept.failures, told(swept)
    assert swept.networks >= NETWORKS - 2


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FEW)
def test_a_few_random_networks_are_right_or_on_the_host(name: str) -> None:
    swept = sweep([machine(name)], 2, seed=FEW[name])
    assert not swept.failures, told(swept)
    assert swept.networks


def test_a_refused_network_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the way back, a machine that cannot transpose five axes refuses the network."""

    def refuse_all(state: CompilationState, error: KernelError) -> None:
        raise error

    def count(case: Case) -> int:
        swept = Sweep([machine("mixed")], lambda case, verdict: None)
        swept.run(case)
        return len(swept.failures)

    case = turned(0, 2, 4, 1, 3)
    assert count(case) == 0
    monkeypatch.setattr(pipeline, "give_to_host", refuse_all)
    assert count(case) == 1


def test_a_kernel_that_plan_has_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    case, target = turned(0, 2, 4, 1, 3), machine("mixed")
    answers = commands.answer_of

    def elsewhere(command: str, *rest: str) -> Any:
        found = answers(command, *rest)
        if command == changed:
            rows = found["kernels"] if command == "plan" else found["nodes"]
            place = "engine" if command == "plan" else "place"
            for row in rows:
                row[place] = {"host": "accelerator", "accelerator": "host"}[row[place]]
        return found

    monkeypatch.setattr(commands, "answer_of", elsewhere)
    for changed in ("plan", "explain"):
        assert commands.disagreement(case, target).startswith(f"{changed} has ")
    changed = ""
    assert commands.disagreement(case, target) == ""
