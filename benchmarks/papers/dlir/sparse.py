"""sparse: layers and networks pruned to several densities on Cambricon-X, dense and compressed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.measuring import alone, kept, model_path
from benchmarks.papers.dlir.code import code_of
from benchmarks.papers.dlir.experiments import KEPT
from benchmarks.report import Column, Table, percent, whole

TITLE = "Sparse Cambricon-X: time and bytes against density, simulated"

LAYERS = {
    "conv3x3": (256, 256, 14, 3),
    "conv1x1": (256, 512, 14, 1),
    "connected": (2048, 1000, 1, 1),
}
"""Input and output channels, map and window of layers as large networks have them."""

DENSITIES = (0.75, 0.5, 0.35, 0.2, 0.1)
"""Parts of a layer's weights that are kept."""

WHOLE = {"lenet5": (0.5, 0.2, 0.1), "alexnet": (0.2,)}
"""Networks all of whose layers are pruned to a density."""

HAN = {"alexnet": (0.84, 0.38, 0.35, 0.37, 0.37, 0.09, 0.09, 0.25)}
"""Densities of layers that keep the accuracy after training again (Han et al., "Learning both
weights and connections for efficient neural networks", NIPS 2015, table 4)."""

NETWORKS = (*LAYERS, *WHOLE)

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


def pruned(name: str, densities: Sequence[float]) -> tuple[onnx.ModelProto, float]:
    """A network of which every layer keeps its largest weights, and the part that is kept.

    ``densities`` are those of the layers in their order, or one for all.
    """
    network = onnx.load(model_path(name))
    stored = {tensor.name: tensor for tensor in network.graph.initializer}
    layers = [node for node in network.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")]
    each = densities if len(densities) == len(layers) else [densities[0]] * len(layers)
    kept, total = 0, 0
    for node, density in zip(layers, each, strict=True):
        tensor = stored[node.input[1]]
        weights = numpy_helper.to_array(tensor).copy()
        # Equal weights at the limit: as many of them as are wanted, the first ones.
        order = np.argsort(-np.abs(weights), axis=None, kind="stable")
        weights.reshape(-1)[order[round(density * weights.size) :]] = 0
        tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
        kept, total = kept + np.count_nonzero(weights), total + weights.size
    return network, float(kept / total)


def run(name: str, densities: Sequence[float]) -> dict[str, Any]:
    """Cycles and bytes of a layer or network, as the compiler chooses and with dense weights."""
    from tilewright.compiler.api import compile
    from tilewright.compiler.pipeline import resolve

    _, machine = resolve("cambricon-x")
    primitives = tuple(p for p in machine.primitives if p.name != "sparse_conv")
    dense = machine.model_copy(update={"primitives": primitives})
    if name in LAYERS:
        network, density = model(name, densities[0]), densities[0]
    else:
        network, density = pruned(name, densities)
    info = network.graph.input[0]
    random = np.random.default_rng(1)
    shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    inputs = {info.name: random.standard_normal(shape).astype(np.float32)}
    row: dict[str, Any] = {"layer": name, "density": density}
    outputs: list[Mapping[str, Any]] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(network, path)
        for form, described in (("dense", dense), ("chosen", machine)):
            made = compile(path, "cambricon-x", machine=described, directory=f"{folder}/{form}")
            outputs.append(made.run(inputs))
            if form == "chosen":
                checked = made.check(inputs, outputs[-1])
                row["passed"] = checked.exact and checked.equal
            kernels = [k for k in made.summary()["kernels"] if k["engine"] == "accelerator"]
            row[f"{form}_cycles"] = sum(kernel["cycles"] for kernel in kernels)
            row[f"{form}_bytes"] = sum(kernel["dram_bytes"] for kernel in kernels)
            row[f"{form}_bound"] = sum(kernel["granule_bound_cycles"] for kernel in kernels)
            sparse = sum("sparse" in kernel["schedule"] for kernel in kernels)
        row["form"] = "compressed" if sparse else "dense"
        if name not in LAYERS:
            products = sum(n.op_type in ("Conv", "Gemm", "MatMul") for n in network.graph.node)
            row["form"] = f"compressed in {sparse} of {products} layers"
    row["same"] = all(np.array_equal(outputs[0][key], outputs[1][key]) for key in outputs[0])
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
    Column("layer", "layer or network"),
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


def measured(name: str, densities: Sequence[float]) -> dict[str, Any]:
    """One layer or network at one density, in a process of its own."""
    return alone(CORES, run, name, densities)


def tables(networks: Sequence[str], resume: bool = False) -> list[Table]:
    """Measure layers and networks at every density."""
    code = code_of("cambricon-x")
    found: dict[str, list[dict[str, Any]]] = {}
    for name in networks:
        wanted = [(density,) for density in WHOLE.get(name, DENSITIES)]
        for densities in [*wanted, *([HAN[name]] if name in HAN else [])]:
            path = KEPT / f"sparse-{name}-{'-'.join(map(str, densities))}.json"
            row = kept(path, resume, measured, name, densities, code=code)
            found.setdefault(name, []).append(row)
    layers = [row for name in networks if name in LAYERS for row in found[name]]
    whole_networks = [row for name in networks if name in WHOLE for row in found[name]]
    remarks = (
        "Weights are those that the compiler chose: compressed where the plan is shorter. Bit for "
        "bit: words against the interpreter, and against the dense weights' words.",
        "A weight that is kept takes 24 bits with its step. Of granule: the bound of the form that "
        "ran.",
    )
    return [
        Table("Layers of 16-bit weights, pruned to a density", COLUMNS, layers, remarks),
        Table(
            "Whole networks, every layer pruned to a density",
            COLUMNS,
            whole_networks,
            (
                "Every layer keeps its largest weights; nothing is trained again. LeNet-5's are "
                "trained, AlexNet's drawn with a fixed seed. AlexNet's last row: densities that "
                "Han et al. (NIPS 2015) reach without a loss, layer by layer.",
                "Cycles and bytes are sums over all kernels, pooling and normalisation included.",
            ),
        ),
    ]
