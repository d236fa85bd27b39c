"""sparse: layers pruned to several densities on Cambricon-X, dense and compressed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.measuring import alone, kept
from benchmarks.papers.dlir.experiments import KEPT
from benchmarks.report import Column, Table, percent, whole

TITLE = "Sparse Cambricon-X: time and bytes against density, simulated"

LAYERS = {
    "conv3x3": (256, 256, 14, 3),
    "conv1x1": (256, 512, 14, 1),
    "connected": (2048, 1000, 1, 1),
}
"""Input and output channels, map and window of layers as large networks have them."""

NETWORKS = tuple(LAYERS)

DENSITIES = (0.75, 0.5, 0.35, 0.2, 0.1)

CORES = 1

OPTIONS = ("resume",)
"""What ``tables`` takes of the command line."""


def model(name: str, density: float) -> onnx.ModelProto:
    """A layer with a ReLU; weights are drawn, then all but the largest set to 0."""
    ci, co, size, window = LAYERS[name]
    random = np.random.default_rng(20240)
    weights = random.standard_normal((co, ci, window, window)).astype(np.float32)
    weights *= np.float32((2 / (ci * window * window * density)) ** 0.5)
    limit = np.quantile(np.abs(weights), 1 - density)
    weights[np.abs(weights) < limit] = 0
    pads = [window // 2] * 4
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "layer", pads=pads),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, ci, size, size])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, co, size, size])
    tensors = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(nodes, name, [image], [result], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(name: str, density: float) -> dict[str, Any]:
    """Cycles and bytes of the layer, as the compiler chooses and with dense weights."""
    from tilewright.compiling import compile
    from tilewright.driver import resolve

    ci, _, size, _ = LAYERS[name]
    _, machine = resolve("cambricon-x")
    kept = tuple(p for p in machine.primitives if p.name != "sparse_conv")
    dense = machine.model_copy(update={"primitives": kept})
    random = np.random.default_rng(1)
    inputs = {"x": random.standard_normal((1, ci, size, size)).astype(np.float32)}
    row: dict[str, Any] = {"layer": name, "density": density}
    outputs: list[Any] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(model(name, density), path)
        for form, described in (("dense", dense), ("chosen", machine)):
            made = compile(path, "cambricon-x", machine=described, directory=f"{folder}/{form}")
            outputs.append(made.run(inputs))
            if form == "chosen":
                checked = made.check(inputs, outputs[-1])
                row["passed"] = checked.exact and checked.passed
            found = made.summary()
            (kernel,) = [k for k in found["kernels"] if k["engine"] == "accelerator"]
            row[f"{form}_cycles"], row[f"{form}_bytes"] = kernel["cycles"], kernel["dram_bytes"]
            row[f"{form}_bound"] = kernel["granule_bound_cycles"]
            row["form"] = "compressed" if "sparse" in kernel["schedule"] else "dense"
    row["same"] = bool(np.array_equal(outputs[0]["y"], outputs[1]["y"]))
    return row | {
        "passed": row["passed"] and row["same"],
        "speedup": row["dense_cycles"] / row["chosen_cycles"],
        "bytes": row["chosen_bytes"] / row["dense_bytes"],
        "efficiency": row["chosen_bound"] / row["chosen_cycles"],
    }


def times(value: float) -> str:
    """1.234 as 1.23 x."""
    return f"{value:.2f} x"


COLUMNS = (
    Column("layer", "layer"),
    Column("density", "density", percent),
    Column("form", "weights"),
    Column("passed", "bit for bit", lambda passed: "yes" if passed else "NO"),
    Column("dense_cycles", "dense cycles", whole),
    Column("chosen_cycles", "cycles", whole),
    Column("speedup", "faster", times),
    Column("dense_bytes", "dense bytes", whole),
    Column("chosen_bytes", "bytes", whole),
    Column("bytes", "of dense", percent),
    Column("efficiency", "of granule", percent),
)


def measured(name: str, density: float) -> dict[str, Any]:
    """One layer at one density, in a process of its own."""
    return alone(CORES, run, name, density)


def tables(networks: Sequence[str], resume: bool = False) -> list[Table]:
    """Measure layers at every density."""
    rows = [
        kept(KEPT / f"sparse-{name}-{density}.json", resume, measured, name, density)
        for name in networks
        for density in DENSITIES
    ]
    return [
        Table(
            "Layers of 16-bit weights, pruned to a density",
            COLUMNS,
            rows,
            (
                "Weights are those that the compiler chose: compressed where the plan is shorter. "
                "Bit for bit: words against the interpreter, and against the dense layer's words.",
                "A weight that is kept takes 24 bits with its step. Of granule: the bound of the "
                "form that ran.",
            ),
        )
    ]
