"""The learned cost of kernels on networks that it was not trained on, beside the paper's 5 %."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks import models
from benchmarks.measuring import model_path
from benchmarks.report import Column, Table, percent, seconds

if TYPE_CHECKING:
    from tilewright.machine import Machine
    from tilewright.network.fusion.learned.model import LearnedCost
    from tilewright.planning.domain import Kernel
    from tilewright.targets.base import Target

Row = dict[str, Any]

TITLE = "DNNVM's learned cost, on kernels of networks that it was not trained on"

TRAINING = ("vgg16", "resnet50", "googlenet")

RANDOM = "random shapes"

NETWORKS = ("mobilenet_v2", "yolov3_tiny", "squeezenet", RANDOM)

DEVICE = "zu2"

PAPER = 0.05
"""Greatest deviation (section 5.1)."""

SHAPES = 12
"""Convolutions of random shapes, each with one behind it."""


def plain(name: str, folder: Path) -> Path:
    """A network with ReLU for other activations: as quick, and known without calibration."""
    model = random_shapes() if name == RANDOM else models.build(name)[1]
    for node in model.graph.node:
        if node.op_type in ("Clip", "LeakyRelu"):
            node.op_type = "Relu"
            del node.input[1:], node.attribute[:]
    path = folder / f"{name.replace(' ', '-')}.onnx"
    onnx.save(model, path)
    return path


def random_shapes() -> ModelProto:
    """Pairs of a convolution and a convolution or pool, of sizes that no network chose."""
    rng = np.random.default_rng(1)
    nodes: list[onnx.NodeProto] = []
    weights: list[TensorProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    outputs: list[onnx.ValueInfoProto] = []

    def convolution(
        x: str, name: str, channels: int, outputs: int, kernel: int, stride: int
    ) -> str:
        values = rng.normal(0, 0.05, (outputs, channels, kernel, kernel)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"{name}.weight"))
        pads = [kernel // 2] * 4
        nodes.append(
            helper.make_node(
                "Conv", [x, f"{name}.weight"], [name], name, pads=pads, strides=[stride] * 2
            )
        )
        nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"], f"{name}.relu"))
        return f"{name}.relu"

    for number in range(SHAPES):
        size, channels, filters = (int(rng.integers(*r)) for r in ((7, 60), (5, 200), (5, 200)))
        kernel, stride = int(rng.choice([1, 3, 5])), int(rng.choice([1, 1, 2]))
        x = f"x{number}"
        inputs.append(
            helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, channels, size, size])
        )
        y = convolution(x, f"a{number}", channels, filters, kernel, stride)
        if number % 3 == 2:
            nodes.append(
                helper.make_node(
                    "MaxPool",
                    [y],
                    [f"b{number}"],
                    f"b{number}",
                    kernel_shape=[2, 2],
                    strides=[2, 2],
                )
            )
            y = f"b{number}"
        else:
            y = convolution(
                y, f"b{number}", filters, int(rng.integers(5, 200)), 3 - 2 * (number % 2), 1
            )
        outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "random", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measured(path: Path, cost: LearnedCost, target: Target, machine: Machine) -> list[Row]:
    """Every group that a network's search asks about and that is a kernel, no two alike, with its
    simulated cycles, and the seconds that these and the learned ones took."""
    from tilewright.compiler.fuse import kernels_formed
    from tilewright.errors import TilewrightError
    from tilewright.graph.dialect import network_of
    from tilewright.network.fusion.learned.training import Planned, groups_of

    timer = target.simulator(machine)
    assert timer is not None
    network = network_of(kernels_formed(path, target, machine).network)
    oracle, rows = Planned(machine), list[Row]()
    for group in groups_of([network], machine):
        planned = oracle.of(group)
        if planned is None:
            continue
        kernel, plan = planned
        begin = time.process_time()
        try:
            cycles = timer(kernel, plan.schedule)
        except TilewrightError:
            continue  # No instructions say it: compile gives it to the host, or takes it apart.
        middle = time.process_time()
        learned = cost.cycles(kernel, plan, machine)
        rows.append(
            {
                "kernel": " + ".join(computes(kernel)),
                "result": " x ".join(map(str, kernel.output.shape)),
                "learned": learned / cycles - 1,
                "closed": plan.predicted_cycles / cycles - 1,
                "simulating": middle - begin,
                "predicting": time.process_time() - middle,
            }
        )
    return rows


def computes(kernel: Kernel) -> list[str]:
    """The operations of a kernel's computes, in order."""
    return [
        *(name for producer in kernel.producers for name in computes(producer)),
        kernel.anchor.operation,
    ]


def summary(network: str, rows: Sequence[Row]) -> Row:
    """Mean and greatest deviation over a network's kernels."""
    row: Row = {"network": network, "kernels": len(rows)}
    for source in ("learned", "closed"):
        sizes = [abs(row[source]) for row in rows]
        row |= {source: max(sizes), f"{source}_mean": sum(sizes) / len(sizes)}
    known = [abs(row["learned"]) for row in rows if "depthwise" not in row["kernel"]]
    spent = [sum(row[what] for row in rows) for what in ("simulating", "predicting")]
    return row | {"known": max(known), "faster": spent[0] / max(spent[1], 1e-9)}


def tables(networks: Sequence[str]) -> list[Table]:
    """Train, then one row for every network."""
    from tilewright.compiler.learn import learn
    from tilewright.compiler.pipeline import resolve

    target, machine = resolve(DEVICE)
    begin = time.process_time()
    cost = learn([model_path(name) for name in TRAINING], target, machine)
    took = time.process_time() - begin
    rows: list[Row] = []
    worst: list[Row] = []
    for name in networks:
        with TemporaryDirectory() as folder:
            deviations = measured(plain(name, Path(folder)), cost, target, machine)
        rows.append(summary(name, deviations))
        worst += [
            {"network": name, **row}
            for row in sorted(deviations, key=lambda r: -abs(r["learned"]))[:3]
        ]
    return [
        Table(
            f"Deviation from the simulator on {DEVICE}",
            [
                Column("network", "network"),
                Column("kernels", "kernels"),
                Column("learned_mean", "learned, mean", percent),
                Column("learned", "greatest", percent),
                Column("known", "without depthwise", percent),
                Column("closed_mean", "closed form, mean", percent),
                Column("closed", "greatest", percent),
                Column("faster", "times faster than simulating", seconds),
            ],
            rows,
            [
                f"Trained on {cost.samples} kernels of {', '.join(TRAINING)}, which it predicts to "
                f"{cost.mean_deviation:.1%} in the mean, {cost.greatest_deviation:.1%} at worst; "
                f"{took:.0f} seconds of the processor, with planning and simulation.",
                "Kernels are all that the fusion search asks about, alone and fused, no two alike.",
                f"The paper has {PAPER:.0%} as the greatest deviation; it names no kernels.",
                "Without depthwise: networks of the training have no depthwise convolution.",
                "ReLU stands for ReLU6 and leaky ReLU, which take as long.",
            ],
        ),
        Table(
            "The worst three of each",
            [
                Column("network", "network"),
                Column("kernel", "kernel"),
                Column("result", "result"),
                Column("learned", "learned", percent),
                Column("closed", "closed form", percent),
            ],
            worst,
            [],
        ),
    ]
