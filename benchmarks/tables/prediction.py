"""prediction: how far the ``exact`` planner's cycles are from the simulator's, layer by layer.

Layers are drawn by seed and planned by the cost model alone; each is then simulated as scheduled.
Nothing of the model is fitted to these layers, or to any others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measuring import alone
from benchmarks.report import Column, Table, percent, seconds, whole

TITLE = "Predicted against simulated cycles"

MACHINES = Path(__file__).parents[2] / "examples" / "machines"

TARGETS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "five-buffers": ("five-buffers.toml", {}),
    "five-buffers, small": (
        "five-buffers.toml",
        {"memory.l1.bytes": "131072", "memory.gm.bytes_per_cycle": "32"},
    ),
    "img2col": ("img2col.toml", {}),
    "img2col, small": (
        "img2col.toml",
        {"memory.image.bytes": "65536", "memory.weight.bytes": "32768"},
    ),
    "flags": ("flags.toml", {}),
    "small-npu": ("small-npu.toml", {}),
    "systolic-int8": ("systolic-int8.toml", {}),
}
"""Machine files, and what is varied of them. The first five have two levels of memory."""

LAYERS = 6
"""Layers of each kind."""

NETWORKS = ("conv", "matmul", "depthwise", "attention")
"""The kinds of layers."""


def _integer(pick: np.random.Generator, low: int, high: int) -> int:
    return int(pick.integers(low, high))


def _conv(pick: np.random.Generator) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    from onnx import helper

    ci, co = (int(pick.choice((3, 16, 24, 48, 64, 96, 128, 192, 256))) for _ in range(2))
    size, kernel, stride = _integer(pick, 7, 60), int(pick.choice((1, 3, 5))), _integer(pick, 1, 3)
    edge = kernel // 2
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[edge] * 4, strides=[stride] * 2)
    ]
    given: dict[str, Any] = {"x": (1, ci, size, size)}
    if pick.random() < 0.5:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    else:
        out = (size + 2 * edge - kernel) // stride + 1
        given["r"] = (1, co, out, out)
        nodes.append(helper.make_node("Add", ["c", "r"], ["y"]))
    return nodes, given, {"w": (co, ci, kernel, kernel), "b": (co,)}


def _depthwise(pick: np.random.Generator) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    from onnx import helper

    channels, size = _integer(pick, 8, 300), _integer(pick, 7, 60)
    kernel, stride = int(pick.choice((3, 5))), _integer(pick, 1, 3)
    pads, strides = [kernel // 2] * 4, [stride] * 2
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, strides=strides, group=channels)
    given = {"x": (1, channels, size, size)}
    return [node], given, {"w": (channels, 1, kernel, kernel)}


def _matmul(pick: np.random.Generator) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    from onnx import helper

    rows, depth, columns = (
        _integer(pick, 1, 300),
        _integer(pick, 32, 1200),
        _integer(pick, 32, 1200),
    )
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return nodes, {"x": (rows, depth)}, {"w": (depth, columns)}


def _attention(pick: np.random.Generator) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    from onnx import helper

    heads, depth = int(pick.choice((2, 4, 8))), int(pick.choice((32, 64)))
    length = _integer(pick, 32, 260)
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    rows = (1, heads, length, depth)
    return nodes, {"q": rows, "k": (1, heads, depth, length), "v": rows}, {}


KINDS: Mapping[
    str, Callable[[np.random.Generator], tuple[list[Any], dict[str, Any], dict[str, Any]]]
] = {"conv": _conv, "matmul": _matmul, "depthwise": _depthwise, "attention": _attention}
"""Nodes, shapes of inputs and of weights of a layer."""


def model_of(kind: str, seed: int) -> bytes:
    """The ONNX model of one layer."""
    from onnx import TensorProto, helper, numpy_helper

    pick = np.random.default_rng((seed, NETWORKS.index(kind)))
    nodes, given, constants = KINDS[kind](pick)
    weights = [
        numpy_helper.from_array(pick.normal(0, 0.1, shape).astype(np.float32), name)
        for name, shape in constants.items()
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in given.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, kind, inputs, [output], weights)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def errors_of(kind: str, seed: int, target: str) -> list[float]:
    """Of each kernel of a layer, the prediction's error: a share of the simulated cycles."""
    from tilewright.compiler.pipeline import resolve, run_pipeline
    from tilewright.planning import Plan, Planner
    from tilewright.planning.domain import Kernel

    file, changes = TARGETS[target]
    found, machine = resolve(str(MACHINES / file))
    machine = machine.with_values(dict(changes))
    kernels: dict[str, Kernel] = {}

    def by_cost(kernel: Kernel) -> Plan:
        kernels[kernel.symbol] = kernel
        return Planner(machine).plan(kernel)

    with TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        path.write_bytes(model_of(kind, seed))
        state = run_pipeline(path, found, machine, ask=by_cost, until="plan")
    clock = found.timer(machine)
    assert clock is not None
    return [
        planned.predicted_cycles / clock(kernels[symbol], planned.schedule) - 1
        for symbol, planned in state.plans.items()
    ]


def run(target: str, kind: str) -> dict[str, Any]:
    """Plan and simulate the layers of one kind."""
    begin = time.perf_counter()
    found = [abs(error) for seed in range(LAYERS) for error in errors_of(kind, seed, target)]
    return {
        "machine": target,
        "kind": kind,
        "kernels": len(found),
        "mean": float(np.mean(found)) if found else 0.0,
        "worst": max(found, default=0.0),
        "seconds": time.perf_counter() - begin,
    }


COLUMNS = (
    Column("machine", "machine"),
    Column("kind", "layers"),
    Column("kernels", "kernels", whole),
    Column("mean", "error, mean", percent),
    Column("worst", "worst", percent),
    Column("seconds", "seconds", seconds),
)


def tables(networks: Sequence[str]) -> list[Table]:
    """Plan and simulate layers on every machine."""
    rows = [alone(1, run, target, kind) for target in TARGETS for kind in networks]
    rows = [row for row in rows if row["kernels"]]
    kernels = sum(row["kernels"] for row in rows)
    total = {
        "machine": "all",
        "kind": "all",
        "kernels": kernels,
        "mean": sum(row["mean"] * row["kernels"] for row in rows) / kernels,
        "worst": max(row["worst"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
    }
    remarks = (
        f"{LAYERS} layers of each kind, drawn by seed; every kernel of theirs, planned by the cost "
        "model alone, and simulated as scheduled. The error is a share of the simulated cycles.",
        "Of the first five machines the products have two levels of memory on the chip. "
        "Layers of which a machine computes nothing have no row.",
    )
    return [Table("Layers drawn at random", COLUMNS, [*rows, total], remarks)]
