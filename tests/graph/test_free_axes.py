"""Where a free dim goes, and what keeps a network from running at every size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.build import without_chains
from tilewright.compiler.pipeline import run_pipeline
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import NetworkOp, network_of
from tilewright.graph.free_axes import FreeSize, free_axes, same_but_for
from tilewright.ir.passes import WeightStore
from tilewright.targets.base import find_target


def node(operator: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], name=output, **attributes)


CONSTANTS = {
    "zero": np.array([0], np.int64),
    "one": np.array([1], np.int64),
    "two": np.array([2], np.int64),
    "many": np.array([2**40], np.int64),
    "flat": np.array([-1], np.int64),
    "table": np.linspace(-1, 1, 64 * 8, dtype=np.float32).reshape(64, 8),
    "weight": np.linspace(-1, 1, 8 * 8, dtype=np.float32).reshape(8, 8),
    "first": np.array(0, np.int64),
}


def network(
    tmp_path: Path, nodes: Sequence[onnx.NodeProto], size: int, until: str = "graph passes"
) -> tuple[NetworkOp, WeightStore]:
    """The network of x [size, 8] to y, on a DaVinci core."""
    used = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        list(nodes),
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["size", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(data, name) for name, data in CONSTANTS.items() if name in used],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    target = find_target("ascend910")
    machine = without_chains(target.machine())
    state = run_pipeline(path, target, machine, shapes={"x": (size, 8)}, until=until)
    return network_of(state.network), state.weights


COUNTED = [node("Shape", "x", "shape"), node("Slice", "shape zero one", "count")]

FOLLOWED = {
    "products": ([node("MatMul", "x weight", "h"), node("Relu", "h", "y")], (0,)),
    "a table's first rows": (
        [*COUNTED, node("Slice", "table zero count zero", "rows"), node("Add", "x rows", "y")],
        (0,),
    ),
    "turned": ([node("Transpose", "x", "h", perm=[1, 0]), node("Relu", "h", "y")], (1,)),
    "scores": (
        [node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "x t", "y")],
        (0, 1),
    ),
    "summed again": (
        [
            node("Transpose", "x", "t", perm=[1, 0]),
            node("MatMul", "t x", "s"),
            node("MatMul", "x s", "y"),
        ],
        (0,),
    ),
    "the first row": ([node("Gather", "x first", "h", axis=0), node("Relu", "h", "y")], ()),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_axes_are_followed(name: str, tmp_path: Path) -> None:
    nodes, axes = FOLLOWED[name]
    placed, _ = network(tmp_path, nodes, 48, "numbers, layouts, memory")
    assert free_axes(placed, FreeSize({"x": (0,)}, {})).outputs(placed) == {"y": axes}
    large = network(tmp_path, nodes, 48)
    for size in (2, 17, 47):
        same_but_for(large, network(tmp_path, nodes, size), {(48, size)})


REFUSED = {
    "a mean of all rows": [node("ReduceMean", "x", "y", axes=[0])],
    "softmax down the columns": [node("Softmax", "x", "y", axis=0)],
    "rows joined with columns": [node("Reshape", "x flat", "h"), node("Relu", "h", "y")],
    "the rows from the third on": [node("Slice", "x two many zero", "h"), node("Relu", "h", "y")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_reads_behind_the_end_is_refused(name: str, tmp_path: Path) -> None:
    placed, _ = network(tmp_path, REFUSED[name], 48, "numbers, layouts, memory")
    with pytest.raises(TilewrightError, match=r"length-kernel.*(y|h)"):
        free_axes(placed, FreeSize({"x": (0,)}, {}))


OTHERS = {
    "a constant of the size": [
        *COUNTED,
        node("Cast", "count", "c", to=TensorProto.FLOAT),
        node("Mul", "x c", "y"),
    ],
    "a slice that ends at half": [
        *COUNTED,
        node("Div", "count two", "half"),
        node("Slice", "x zero half zero", "h"),
        node("Relu", "h", "y"),
    ],
}


@pytest.mark.parametrize("name", OTHERS)
def test_networks_that_depend_on_the_size_differ(name: str, tmp_path: Path) -> None:
    large, small = (network(tmp_path, OTHERS[name], size) for size in (48, 32))
    with pytest.raises(TilewrightError, match="length-structure"):
        same_but_for(large, small, {(48, 32)})
