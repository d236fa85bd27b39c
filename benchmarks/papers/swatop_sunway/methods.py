"""Winograd's method and the explicit one beside the implicit one, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright
from benchmarks.report import Column, Table, percent, whole
from tilewright.compiler.pipeline import run_pipeline
from tilewright.compiler.state import context_of
from tilewright.graph import passes
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.ir.types import shape_of
from tilewright.targets.sunway.machine import CPES, MACHINE
from tilewright.targets.sunway.passes.choose_methods import ChooseMethods
from tilewright.targets.sunway.passes.staged_methods import EXPLICIT as EXPLICIT_METHOD
from tilewright.targets.sunway.passes.staged_methods import method_names, priced_stages
from tilewright.targets.sunway.target import SunwayTarget

LAYERS = (
    *((64, 64, 224), (128, 128, 112), (256, 256, 56), (512, 512, 28), (512, 512, 14)),
    *((64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7)),
)
"""Of VGG and ResNet: input and output channels, and the side of the result."""

PLANNER = "blackbox"
"""The machine's cost model is asked for every strategy, so that no method loses by a poor pick."""

MOST = 1 << 30
"""Elements of a tensor that is imported."""

FORMS = tuple(n for n in method_names()[1:] if n != EXPLICIT_METHOD and not n.endswith("5x5"))


def method_rows(name: str, batch: int, inputs: int, outputs: int, side: int) -> dict[str, Any]:
    """The methods of one convolution (3x3, nothing padded), with what each gains."""
    target = SunwayTarget()
    with target.planner(PLANNER, MACHINE) as planner, TemporaryDirectory() as folder:
        model = Path(folder) / "layer.onnx"
        onnx.save(_model(batch, inputs, outputs, side), model)
        state = run_pipeline(model, target, MACHINE, ask=planner, until="kernels")
        (kernel,) = (op for op in network_of(state.network).block.ops if isinstance(op, KernelOp))
        assert shape_of(kernel.result) == (batch, outputs, side, side)
        direct, *others = priced_stages(kernel, context_of(state, {}), None)
    row: dict[str, Any] = {"name": name, "group": batch, "cycles": direct.cycles}
    row |= {other.primitive: direct.cycles / other.cycles for other in others}
    best = min((direct, *others), key=lambda method: method.cycles)
    row["best"] = "implicit" if best is direct else best.primitive
    row["gain"] = direct.cycles / best.cycles
    peak = batch * inputs * outputs * side * side * 9 / (4 * CPES)
    row["direct_peak"], row["peak"] = peak / direct.cycles, peak / best.cycles
    return row


def fits(batch: int, inputs: int, outputs: int, side: int) -> bool:
    """Whether tensors of the layer and of its tiles have no more elements than tensors may."""
    points = 36 * -((-side // 4) ** 2)
    return batch * max(inputs, outputs) * max(points, (side + 2) ** 2) < MOST


def methods_table(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """The table of the rows, and the means by batch."""
    columns = (
        Column("name", "batch, Ni x No x Ro"),
        Column("cycles", "implicit, cycles", whole),
        Column("direct_peak", "of peak", percent),
        *(Column(name, name, _ratio) for name in FORMS),
        Column("best", "best method"),
        Column("gain", "gain over implicit", _ratio),
        Column("peak", "of peak, direct count", percent),
    )
    remarks = (
        "winograd_T: tiles of T x T outputs, as three kernels: inputs transformed, products, "
        "outputs; what each gains over the implicit method. 15,000 cycles to spawn the CPEs "
        "(an estimate) count for every kernel.",
        f"Planner {PLANNER} for all kernels. The direct count: multiply-adds of the implicit "
        "method over the time of the best one, of the CPEs' 742.4 GFLOPS.",
        "The paper: Winograd's at 1.2 times the peak of 3.06 TFLOPS at most, 0.6 in the mean of "
        "batch 32 and 128.",
    )
    lines: list[dict[str, Any]] = []
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group]
        line: dict[str, Any] = {"name": f"batch {group}, {len(own)} shapes"}
        line |= {key: mean(row[key] for row in own) for key in ("direct_peak", "gain", "peak")}
        line["most"] = max(row["peak"] for row in own)
        line["taken"] = sum(row["best"] != "implicit" for row in own)
        lines.append(line)
    means = (
        Column("name", "shapes"),
        Column("direct_peak", "implicit, of peak", percent),
        Column("taken", "Winograd's is faster", whole),
        Column("gain", "gain of the best method", _ratio),
        Column("peak", "of peak, direct count", percent),
        Column("most", "at most", percent),
    )
    return [
        Table("Listing 1 and layers of VGG and ResNet, 3x3: methods", columns, rows, remarks),
        Table("Means over methods", means, lines, ()),
    ]


EXPLICIT = (
    *(("VGG conv1_1", 3, 64, 224, 3, 1), ("ResNet conv1", 3, 64, 112, 7, 2)),
    *(("AlexNet conv1", 3, 96, 55, 11, 4), ("AlexNet conv2", 48, 128, 27, 5, 1)),
    *(("ResNet conv2", 64, 64, 56, 3, 1), ("ResNet conv4_1", 128, 256, 14, 3, 2)),
    *(("ResNet conv5", 512, 512, 7, 3, 1), ("ViT-B, 16x16", 3, 768, 14, 16, 16)),
)
"""Input and output channels, side of the result, window, stride."""

COUNTED = 1
"""The batch that the shim counts: a larger one takes it hours."""


def explicit_table() -> Table:
    """The explicit method beside the implicit one: by the plans, and as the shim counts."""
    rows: list[dict[str, Any]] = []
    for batch in (1, 32):
        for name, *sizes in EXPLICIT:
            inputs, outputs, side, window, stride = sizes
            model = _model(batch, inputs, outputs, side, window, stride)
            row: dict[str, Any] = {"name": f"{name}, batch {batch}"}
            for method, parts in (("conv", ("direct",)), (EXPLICIT_METHOD, ("windows", "product"))):
                planned, counted = _cycles_by(method, model, count=batch == COUNTED)
                row |= dict(zip(parts, planned, strict=True))
                row |= {f"{part}_counted": each for part, each in zip(parts, counted, strict=False)}
            row["gain"] = row["direct"] / (row["windows"] + row["product"])
            if batch == COUNTED:
                both = row["windows_counted"] + row["product_counted"]
                row["gain_counted"] = row["direct_counted"] / both
            rows.append(row)
    columns = (
        Column("name", "layer"),
        Column("direct", "implicit, planned", whole),
        Column("direct_counted", "counted", whole),
        Column("windows", "windows, planned", whole),
        Column("windows_counted", "counted", whole),
        Column("product", "product, planned", whole),
        Column("product_counted", "counted", whole),
        *(Column("gain", "gain, planned", _ratio), Column("gain_counted", "counted", _ratio)),
    )
    remarks = (
        "Two kernels: windows written side by side, and their product; plans that networks get by "
        "default. 15,000 cycles to spawn the CPEs (an estimate) count for every kernel.",
        "Counted: what the shim counts of the emitted program, whose values are compared with the "
        f"interpreter's; at batch {COUNTED} alone, as a larger one takes it hours.",
    )
    return Table("Explicit convolution", columns, rows, remarks)


def _cycles_by(
    method: str, model: onnx.ModelProto, *, count: bool
) -> tuple[list[float], list[float]]:
    """Cycles of each kernel of a convolution by one method: as planned, and as counted."""
    forced = partial(ChooseMethods, method=(method,))
    with patch.object(passes, "ChooseMethods", forced), TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(model, path)
        package = tilewright.compile(path, "sunway", directory=Path(folder) / "p")
        planned = [kernel.predicted_cycles or 0.0 for kernel in package.manifest.kernels]
        if not count:
            return planned, []
        (info,) = package.inputs
        x = np.random.default_rng(1).normal(size=info.shape).astype(np.float32)
        assert package.check({"x": x}, package.run({"x": x}, profile=True)).equal
        return planned, [kernel.cycles or 0.0 for kernel in package.profile.kernels]


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _model(
    batch: int, inputs: int, outputs: int, side: int, window: int = 3, stride: int = 1
) -> onnx.ModelProto:
    """One convolution without padding."""
    own = (side - 1) * stride + window
    shape = (outputs, inputs, window, window)
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    weights = numpy_helper.from_array(values, "w")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="layer", strides=[stride, stride])],
        "layer",
        [value("x", TensorProto.FLOAT, (batch, inputs, own, own))],
        [value("y", TensorProto.FLOAT, (batch, outputs, side, side))],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
