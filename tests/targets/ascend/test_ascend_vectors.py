"""Networks of operations of the vector unit: on the core, and as the interpreter has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.transformers import bert_small
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.slow import but_fast

import tilewright
from benchmarks import models
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.targets.ascend.runner import AscendRunner

Node = tuple[str, dict[str, Any]]
"""An operator of ONNX and its attributes."""

CASES: dict[str, tuple[Node, tuple[int, ...]]] = {
    "softmax": (("Softmax", {"axis": -1}), (3, 17, 50)),
    "softmax of channels": (("Softmax", {"axis": 1}), (2, 5, 40)),
    "mean": (("ReduceMean", {"axes": [-1], "keepdims": 1}), (33, 100)),
    "sum of two axes": (("ReduceSum", {"keepdims": 0}), (4, 5, 33)),
    "maximum": (("ReduceMax", {"axes": [1], "keepdims": 0}), (3, 63, 10)),
    "minimum of all": (("ReduceMin", {"keepdims": 1}), (7, 9)),
    "product": (("ReduceProd", {"axes": [0]}), (3, 17)),
    "transpose": (("Transpose", {"perm": [0, 2, 3, 1]}), (1, 17, 2, 40)),
    "permutation": (("Transpose", {"perm": [3, 1, 2, 0]}), (3, 4, 5, 6)),
    "gelu": (("Erf", {}), (5, 63)),
    "tanh": (("Tanh", {}), (4097,)),
    "sigmoid": (("Sigmoid", {}), (3, 17)),
    "hard swish": (("HardSwish", {}), (17, 15)),
    "hard sigmoid": (("HardSigmoid", {"alpha": 0.3}), (63,)),
    "leaky": (("LeakyRelu", {"alpha": 0.1}), (100,)),
    "elu": (("Elu", {}), (100,)),
    "softplus": (("Softplus", {}), (100,)),
    "negative": (("Neg", {}), (9, 9)),
    "absolute": (("Abs", {}), (9, 9)),
    "maxima": (("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
               (1, 20, 15, 14)),
    "dilated maxima": (("MaxPool", {"kernel_shape": [2, 3], "dilations": [2, 1]}), (2, 5, 9, 8)),
    "averages": (("AveragePool", {"kernel_shape": [3, 3], "pads": [1] * 4}), (1, 17, 9, 8)),
    "averages of padding": (
        ("AveragePool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
        (1, 16, 9, 8),
    ),
    "global average": (("GlobalAveragePool", {}), (2, 17, 7, 5)),
    "slice": (("Slice", {}), (9, 33, 20)),
    "pad": (("Pad", {}), (3, 10, 17)),
}  # fmt: skip
FAST = ["softmax", "mean", "sum of two axes", "transpose", "maxima", "averages", "pad", "slice"]

MORE: dict[str, list[NDArray[Any]]] = {
    "sum of two axes": [np.array([0, 2], np.int64)],
    "slice": [
        np.array([1, 30], np.int64),
        np.array([8, 4], np.int64),
        np.array([0, 1], np.int64),
        np.array([3, -2], np.int64),
    ],
    "pad": [np.array([0, 2, 1, 1, 0, 3], np.int64), np.array(-1.5, np.float32)],
}
"""Operands that are constant."""


def model_of(path: Path, node: Node, shape: tuple[int, ...], more: list[NDArray[Any]]) -> Path:
    operation, attributes = node
    weights = [numpy_helper.from_array(array, f"c{n}") for n, array in enumerate(more)]
    nodes = [
        helper.make_node(
            operation, ["x", *(one.name for one in weights)], ["y"], name="node", **attributes
        )
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "one", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def on_host(executable: tilewright.Executable) -> dict[str, str]:
    """The kernels of the host and why, without casts of what comes and goes."""
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    return {
        op.symbol.data: op.reason.data if op.reason is not None else ""
        for op in kernels
        if op.on_host and [step.name for step in op.operations] != ["graph.cast"]
    }


@pytest.mark.few(2)
@pytest.mark.parametrize("name", but_fast(CASES, FAST))
def test_operations(name: str, tmp_path: Path) -> None:
    node, shape = CASES[name]
    path = model_of(tmp_path / "model.onnx", node, shape, MORE.get(name, []))
    executable = tilewright.compile(path, target="ascend910")
    assert on_host(executable) == {}
    runner = executable.runner
    assert isinstance(runner, AscendRunner)
    x = np.random.default_rng(1).normal(0, 1.5, shape).astype(np.float32)
    for order in (0, 9, 12, 77):
        runner.order = order
        found = executable.run({"x": x})
        check = executable.check({"x": x}, found)
        assert check.equal, check


def test_310_has_no_division(tmp_path: Path) -> None:
    nodes = [helper.make_node("Div", ["x", "z"], ["y"], name="quotient")]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (5, 7)) for name in "xz"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 7))]
    graph = helper.make_graph(nodes, "quotient", inputs, outputs)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    reasons = on_host(tilewright.compile(path, target="ascend310"))
    assert "computes div" in next(iter(reasons.values()))
    assert on_host(tilewright.compile(path, target="ascend910")) == {}


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [17, 32])
def test_a_transformer(tokens: int, tmp_path: Path) -> None:
    """All but its integers: the words' rows, and the mask, which comes as integers."""
    path = tmp_path / "bert.onnx"
    onnx.save(models.randomise(bert_small(layers=1, tokens=tokens)), path)
    executable = tilewright.compile(path, target="ascend910")
    reasons = on_host(executable)
    assert all("computes gather" in one or "computes cast" in one for one in reasons.values())
    random = np.random.default_rng(3)
    given = {
        "tokens": random.integers(0, 1000, (1, tokens)),
        "mask": (np.arange(tokens)[None] < tokens - 3).astype(np.int64),
    }
    runner = executable.runner
    assert isinstance(runner, AscendRunner)
    for order in (0, 12, 77):
        runner.order = order
        assert executable.check(given, executable.run(given)).equal
