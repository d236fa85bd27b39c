"""Which operations the host runs: those that a machine lacks, and nodes that join too much."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

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
