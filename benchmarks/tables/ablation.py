"""ablation: what mechanisms of ACC-C's code generation are worth, each switched off alone.

Each network is planned once a configuration; then its kernels are lowered with each mechanism
switched off and simulated in a row, without values, as the planner does. Schedules stay the same.
Networks keep their layers and have smaller images, for a run to end within minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.report import Column, Table, whole
from benchmarks.tables import unseen

TITLE = "What mechanisms of ACC-C's code generation are worth"

SIZES = ("cambricon", "cambricon-s", "cambricon-m")

IMAGE = 64
"""Rows and columns of the images of networks that take any size."""

LOWERING = "tilewright.targets.cambricon.lowering"

Patch = tuple[str, Any]
"""A name within the lowering, and what stands in its place."""


def _nothing(*arguments: Any) -> None:
    del arguments


def _no_band(context: Any, weights: Any, rows: Any, columns: Any) -> tuple[Any, int]:
    del context, weights, rows
    return columns, 1


MOVED = ("input", "output", "residual", "weight")

MECHANISMS: Mapping[str, Sequence[Patch]] = {
    "weights before their kernel": [("prefetch.Prefetches.earlier_slot", _nothing)],
    "weights by both DMAs": [("transfers.split_load_of", _nothing)],
    "bands of pixels": [("choices.banded", _no_band)],
    "a group's pixels gathered": [("choices.ring_bytes", lambda *_: 0)],
    "code for each number of rows in windows cut off": [
        ("windows.VARIANTS", 0),
        # Gathering a group's pixels stands on it.
        ("gathered.VARIANTS", 0),
    ],
    "addresses of pooled columns in registers": [
        ("kernel.USES", (((*MOVED, "bias"), 0), (MOVED, 0), (("output",), 0), ((), 0)))
    ],
    "moves in streams": [("kernel.USES", (((), 45), ((), 27), ((), 0)))],
    "streams that wait for the transfer before": [("transfers.Transfers.pause", lambda *_: 0)],
    "issue slots at pixels and rows, not at batches alone": [("choices.LONG", 1 << 30)],
    "long pixels finished one by one": [("choices.ALONE", 1 << 30)],
    "steps of an epilogue at several pixels": [
        ("batches.Batches.step_pixels", lambda _, steps, count: [0] * steps)
    ],
}
"""By what they do: what is put in the place of which names."""


def _resized(name: str) -> Callable[[], Any]:
    """A network of the zoo on smaller images; a mean of whole images stays one."""

    def make() -> Any:
        from onnx import shape_inference

        from benchmarks import models

        _, model = models.build(name)
        graph = model.graph
        del graph.value_info[:]
        sizes = graph.input[0].type.tensor_type.shape.dim
        sizes[2].dim_value = sizes[3].dim_value = IMAGE
        for node in graph.node:
            kernels = [each.ints[0] for each in node.attribute if each.name == "kernel_shape"]
            if node.op_type == "AveragePool" and max(kernels, default=0) > 6:
                node.op_type = "GlobalAveragePool"
                del node.attribute[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
        return shape_inference.infer_shapes(model)

    return make


def _groups() -> Any:
    """A convolution of two groups, pools, and fully connected layers whose weights are many."""
    from benchmarks.exports import Network

    net = Network("groups", [1, 3, 35, 35], gain=2.0)
    x = net.node("Relu", [net.conv("x", 3, 96, 5, 2)])
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2])
    x = net.node("Relu", [net.conv(x, 96, 192, 5, 1, 2)])
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2])
    x = net.node("Relu", [net.linear(net.node("Flatten", [x]), 1728, 1024)])
    return net.finish(net.linear(x, 1024, 1024))


def _lenet5() -> Any:
    """A network of small pools, whose columns lie at fixed places."""
    from benchmarks import models

    return models.build("lenet5")[1]


BUILDERS: Mapping[str, Callable[[], Any]] = {
    "lenet5": _lenet5,
    **{name: _resized(name) for name in ("squeezenet", "resnet18", "mobilenet_v2")},
    "unet": unseen.unet,
    "efficientnet_lite": unseen.efficientnet_lite,
    "groups": _groups,
}

NETWORKS = tuple(BUILDERS)


def run(network: str, size: str) -> dict[str, float]:
    """Cycles of a network with all mechanisms ("") and without each."""
    import onnx

    from tilewright.compiler.pipeline import resolve, run_pipeline
    from tilewright.graph.dialect import network_of
    from tilewright.graph.placement import arenas_of

    target, machine = resolve(size)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{network}.onnx"
        onnx.save(BUILDERS[network](), path)
        state = run_pipeline(path, target, machine)
    timer = target.run_timer(machine, arenas_of(network_of(state.network)))
    assert timer is not None
    cycles: dict[str, float] = {}
    for name, patches in ({"": []} | dict(MECHANISMS)).items():
        with ExitStack() as replaced:
            for place, value in patches:
                replaced.enter_context(patch(f"{LOWERING}.{place}", value))
            cycles[name] = timer(state.kernels)
    return cycles


def tables(networks: Sequence[str]) -> list[Table]:
    """One table a configuration: gains in percent of a network's cycles."""
    return [_table(size, {network: run(network, size) for network in networks}) for size in SIZES]


def _table(size: str, cycles: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [{"mechanism": "cycles with all", **{n: whole(each[""]) for n, each in cycles.items()}}]
    for name in MECHANISMS:
        gains = {n: f"{100 * (each[name] / each[''] - 1):.2f}" for n, each in cycles.items()}
        rows.append({"mechanism": name, **gains})
    columns = [Column("mechanism", "mechanism"), *(Column(name, name) for name in cycles)]
    remark = "Gain in % of the cycles of the whole network, batch 1; the mechanism alone is off."
    return Table(size, columns, rows, (remark,))
