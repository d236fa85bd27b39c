"""Pruned networks: the same results as with dense weights, in less time and with fewer bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler import api as compiling
from tilewright.compiler.pipeline import resolve
from tilewright.machine import Machine
from tilewright.report.explain import explain
from tilewright.runtime import Executable
from tilewright.targets.base import find_target

DENSITIES = (0.05, 0.25, 0.9)


def pruned(density: float, seed: int = 0) -> onnx.ModelProto:
    """Two convolutions, the second with a stride, and a layer of 100 outputs."""
    random = np.random.default_rng(seed)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        drawn = random.standard_normal(shape) * (random.random(shape) < density)
        return numpy_helper.from_array((0.2 * drawn).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "v"], ["d"], "second", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["d"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "u"], ["y"], "dense", transB=1),
    ]
    bias = numpy_helper.from_array(random.standard_normal(40).astype(np.float32), "b")
    tensors = [weights("w", 40, 32, 3, 3), weights("v", 64, 40, 3, 3), weights("u", 100, 64), bias]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 12, 12])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 100])
    graph = helper.make_graph(nodes, "pruned", [image], [result], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def without_compression() -> Machine:
    machine = find_target("cambricon-x").machine()
    kept = tuple(p for p in machine.primitives if p.name != "sparse_conv")
    return machine.model_copy(update={"primitives": kept})


@cache
def compiled(density: float, dense: bool, folder: Path) -> Executable:
    path = folder / f"{density}.onnx"
    onnx.save(pruned(density), path)
    machine = without_compression() if dense else None
    return compiling.compile(path, "cambricon-x", machine=machine)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pruned")


def image(seed: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 32, 12, 12)).astype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "density",
    [pytest.param(d, marks=[pytest.mark.slow] * (d != 0.25)) for d in DENSITIES],
)
def test_results_are_those_of_dense_weights(density: float, folder: Path) -> None:
    sparse, dense = (compiled(density, flag, folder) for flag in (False, True))
    seen: set[bytes] = set()
    for seed in range(2):
        outputs = sparse.run(image(seed), check_races=True)
        assert sparse.check(image(seed), outputs).exact
        expected = dense.run(image(seed))["y"]
        np.testing.assert_array_equal(outputs["y"], expected)
        seen.add(expected.tobytes())
    assert len(seen) == 2


@pytest.mark.slow
def test_few_weights_take_less_time_and_fewer_bytes(folder: Path) -> None:
    found = {d: compiled(d, False, folder) for d in DENSITIES}
    for executable in found.values():
        executable.run(image(0))
    dense = compiled(0.9, True, folder)
    dense.run(image(0))
    cycles = {d: e.profile.cycles or 0 for d, e in found.items()}
    moved = {d: e.profile.dram_bytes or 0 for d, e in found.items()}
    assert cycles[0.05] < 0.3 * cycles[0.9] and cycles[0.25] < 0.6 * cycles[0.9]
    assert moved[0.05] < moved[0.25] < moved[0.9]
    # Where it would not win, weights stay as they are.
    assert cycles[0.9] == dense.profile.cycles


def test_explain_tells_which_layers_are_compressed(folder: Path) -> None:
    _ = compiled(0.05, False, folder)
    target, machine = resolve("cambricon-x")
    told = {fate.node: fate.how for fate in explain(folder / "0.05.onnx", target, machine).nodes}
    assert told["second"].startswith("weights compressed: 4.8 % kept")
    assert "bytes for 46,080" in told["second"]
    assert not told["pool"]
