"""dlplib: the library's cycles beside the best that the same layers take here, and the thesis'."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measuring import alone
from benchmarks.papers.dlplib.nets import prototxt
from benchmarks.report import Column, Table, percent, whole

TITLE = "DLPlib's nine benchmarks (table 3.5 of the thesis) on Cambricon-X, simulated"

NETWORKS = ("conv1", "conv2", "pool1", "pool2", "lrn", "fc1", "fc2", "alexnet", "vgg16")

TARGET = "cambricon-x"

THESIS = {
    "conv1": "77-93 %",
    "conv2": "77-93 %",
    "pool1": "56-81 %",
    "pool2": "56-81 %",
    "lrn": "78 %",
    "fc1": "89-90 %",
    "fc2": "89-90 %",
    "alexnet": "78 %",
    "vgg16": "75 %",
}
"""Of hand-written instructions (section 3.7.2.1); 79 % on average."""

CHECKED = ("pool1", "pool2", "lrn", "fc1", "fc2", "alexnet")
"""Whose values are computed too, and compared with the graph interpreter bit for bit."""

COLUMNS = (
    Column("network", "benchmark"),
    Column("passed", "bit for bit", lambda passed: "yes" if passed else "NO"),
    Column("calls", "calls"),
    Column("cycles", "DLPlib", whole),
    Column("whole", "compiled whole", whole),
    Column("granule_bound", "granule bound", whole),
    Column("latency_bound", "latency bound", whole),
    Column("of_whole", "of compiled whole", percent),
    Column("of_granule", "of granule bound", percent),
    Column("of_latency", "of latency bound", percent),
    Column("thesis", "thesis, of hand-written"),
)

HAND = (
    Column("network", "benchmark"),
    Column("hand", "HLAL by hand", whole),
    Column("compiled", "compiled", whole),
    Column("reached", "compiled reaches", percent),
    Column("thesis", "thesis: DLPlib, of hand-written on Cambricon-X"),
)

LAYERS = (
    Column("network", "network"),
    Column("operator", "operator"),
    Column("calls", "calls"),
    Column("cycles", "cycles", whole),
    Column("share", "share", percent),
)


def tables(networks: Sequence[str]) -> list[Table]:
    """Measure the benchmarks."""
    results = [alone(1, measure, name) for name in networks]
    rows = [{key: value for key, value in row.items() if key != "operators"} for row in results]
    if rows:
        rows.append(
            {
                "network": "geometric mean",
                "thesis": "79 % (mean)",
                **{
                    key: exp(sum(log(row[key]) for row in rows) / len(rows))
                    for key in ("of_whole", "of_granule", "of_latency")
                },
            }
        )
    shares = [
        {"network": row["network"], **part, "share": part["cycles"] / row["cycles"]}
        for row in results
        if len(row["operators"]) > 1
        for part in row["operators"]
    ]
    notes = (
        "DLPlib: the sum of the calls that `dlplib.caffe.Net` makes for the prototxt, each a "
        "program of its own. Compiled whole: the same prototxt through `tilewright.compile`, one "
        "program whose layers follow each other without a pause; the best that we have for the "
        "layers. Bounds are those of that program (planning/cost/bounds.py).",
        "The thesis' hand-written instructions are not published, so its column and ours divide by "
        "different numbers.",
        "Instruction words travel over the same bus as the data in both. What the host moves "
        "(weights into the machine's blocks, at every call) has no cycles in either.",
    )
    hand = [alone(1, on_cambricon, name) for name in networks]
    if hand:
        mean = exp(sum(log(row["reached"]) for row in hand) / len(hand))
        hand.append({"network": "geometric mean", "reached": mean, "thesis": "79 % (mean)"})
    hand_notes = (
        "HLAL by hand: examples/hlal/nine, without barriers; of the two networks, their layers one "
        "by one (benchmarks/papers/dlplib/hand.py), each cut as suits it, so that no layer pays "
        "for what its neighbours read. Compiled: the same prototxt through `tilewright.compile`.",
    )
    return [
        Table("Nine benchmarks", COLUMNS, rows, notes),
        Table("Where the time goes", LAYERS, shares),
        Table("The same on ACC-C, beside HLAL by hand", HAND, hand, hand_notes),
    ]


def on_cambricon(name: str) -> dict[str, Any]:
    """A benchmark on ACC-C: by hand and compiled."""
    from benchmarks.papers.dlplib.hand import by_hand
    from tilewright.compiler.api import compile

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.prototxt"
        path.write_text(prototxt(name))
        sample = np.random.default_rng(20240).standard_normal((1, *_shape(path)))
        package = compile(path, "cambricon", calibration={"data": sample.astype(np.float32)})
        compiled = float(package.runner.timed().cycles or 0)
    hand = by_hand(name)
    return {
        "network": name,
        "hand": hand,
        "compiled": compiled,
        "reached": hand / compiled,
        "thesis": THESIS[name],
    }


def measure(name: str) -> dict[str, Any]:
    """One benchmark's cycles by calls and as a whole, and its bounds."""
    from benchmarks.papers.dlir.measure import least
    from tilewright.compiler.api import compile
    from tilewright.compiler.pipeline import resolve, run_pipeline
    from tilewright.integrations.dlplib.caffe import Net

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.prototxt"
        path.write_text(prototxt(name))
        checked = name in CHECKED
        shape = _shape(path)
        sample = np.random.default_rng(20240).standard_normal((1, *shape)).astype(np.float32)
        calibration = {"data": sample}
        net = Net(path, target=TARGET, calibration=calibration, check=checked, compute=checked)
        net.forward({"data": sample[0]})
        package = compile(path, TARGET, calibration=calibration)
        cycles = package.runner.timed().cycles or 0
        known, machine = resolve(TARGET)
        state = run_pipeline(path, known, machine, calibration=calibration, until="plan")
        kernels = [item.kernel for item in state.kernels if item.schedule is not None]
        granule = sum(row.granule_bound or 0 for row in package.manifest.kernels)
        latency = sum(least(kernel, machine) for kernel in kernels)
    operators: dict[str, list[int]] = {}
    for run in net.handle.runs:
        operators.setdefault(run.operator, []).append(run.cycles or 0)
    return {
        "network": name,
        "passed": True if checked else None,  # A difference is refused by the handle.
        "calls": len(net.handle.runs),
        "cycles": net.cycles,
        "whole": cycles,
        "granule_bound": granule,
        "latency_bound": latency,
        "of_whole": cycles / net.cycles,
        "of_granule": granule / net.cycles,
        "of_latency": latency / net.cycles,
        "thesis": THESIS[name],
        "operators": [
            {"operator": operator, "calls": len(found), "cycles": sum(found)}
            for operator, found in operators.items()
        ],
    }


def _shape(path: Path) -> tuple[int, ...]:
    from tilewright.frontends.caffe import import_caffe
    from tilewright.graph.dialect import network_of
    from tilewright.ir.types import shape_of

    ((_, value),) = network_of(import_caffe(path).module).inputs
    return shape_of(value)
