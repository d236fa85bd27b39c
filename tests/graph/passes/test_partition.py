"""Which operations the host runs: those that a machine lacks, and nodes that join too much."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operation import Operation
from tilewright.graph.passes.partition import MOST_JOINED


def sum_of(count: int, path: Path) -> Path:
    """A model with one node that adds up ``count`` inputs."""
    names = [f"x{index}" for index in range(count)]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 4, 4]) for n in names]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 4, 4])
    graph = helper.make_graph([helper.make_node("Sum", names, ["y"], "all")], "g", values, [result])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def names_in(kernel: KernelOp) -> list[str]:
    return [op.name.removeprefix("graph.") for op in kernel.walk() if isinstance(op, Operation)]


def engines(path: Path, target: str) -> set[tuple[str, str]]:
    """Engines of the kernels, once these are formed, and the reasons why they are the host's."""
    state = run_pipeline(path, *resolve(target), until="kernels")
    return {
        (op.engine.data if op.engine is not None else "", op.reason.data if op.reason else "")
        for op in state.network.walk()
        if isinstance(op, KernelOp) and "add" in names_in(op)
    }


@pytest.mark.parametrize("target", ["shidiannao", "zu2", "examples/machines/small-npu.toml"])
def test_a_node_of_many_operands_is_the_hosts(target: str, tmp_path: Path) -> None:
    few = engines(sum_of(MOST_JOINED, tmp_path / "few.onnx"), target)
    assert {engine for engine, _ in few} == {"accelerator"}
    ((engine, reason),) = engines(sum_of(MOST_JOINED + 1, tmp_path / "many.onnx"), target)
    assert engine == "host" and f"more than {MOST_JOINED} operands" in reason


def test_the_processor_at_hand_has_no_other(tmp_path: Path) -> None:
    path = sum_of(MOST_JOINED + 1, tmp_path / "many.onnx")
    assert {engine for engine, _ in engines(path, "cpu")} == {"accelerator"}


@pytest.mark.parametrize("target", ["shidiannao", "cambricon-x"])
def test_a_map_goes_with_the_rest_of_its_node(target: str, tmp_path: Path) -> None:
    """x / |x| is 1 or -1: |x| in fixed point beside x in float32 would be off by 3 %."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 7, 2]) for n in "xyz"]
    nodes = [
        helper.make_node("LpNormalization", ["x"], ["y"], "norm", axis=0, p=1),
        helper.make_node("Abs", ["x"], ["z"], "abs"),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    path = tmp_path / "norm.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    state = run_pipeline(path, *resolve(target), until="kernels")
    kernels = [op for op in state.network.walk() if isinstance(op, KernelOp)]
    hosts = {op.symbol.data: op.on_host for op in kernels}
    assert not any(on_host for name, on_host in hosts.items() if "norm" not in name)
    assert all(on_host for name, on_host in hosts.items() if "norm" in name) and len(hosts) > 4
    assert all(op.reason is not None and "reduce_sum" in op.reason.data for op in kernels[:1])

    x = np.random.default_rng(0).uniform(-1, 1, (1, 8, 7, 2)).astype(np.float32)
    x[0, 0] *= np.float32(0.01)
    result = tilewright.compile(path, target).run({"x": x})["y"]
    np.testing.assert_allclose(result, np.sign(x), rtol=1e-6)
