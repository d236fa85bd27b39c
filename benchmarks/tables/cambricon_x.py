"""cambricon-x: cycles against the bounds, predicted against simulated, bits, memory, time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import exp, log
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from benchmarks import models
from benchmarks.measuring import Stopwatch, alone, model_path
from benchmarks.report import Column, Table, megabytes, percent, seconds, whole

TITLE = "cambricon-x (dense ACC-X), 16-bit fixed point, simulated"

NETWORKS = ("lenet5", "alexnet", "vgg16", "resnet50")

PIPELINED = 4
"""Transfers of one move in flight when latencies may overlap; the machine as published has 1."""

CORES = 2

# Cycle-weighted efficiencies against the (physical, granule) bound with serial latency, from an
# independent study of the same machine: every tiling, 24 orders, simulated.
STUDY = {"alexnet": (0.59, 0.88), "vgg16": (0.95, 0.98), "resnet50": (0.88, 1.00)}

# What the project asks of the whole network, against the granule bound, and of its convolutions.
TARGETS = {
    ("alexnet", "serial"): 0.88,
    ("alexnet", "pipelined"): 0.97,
    ("vgg16", "serial"): 0.97,
    ("vgg16", "pipelined"): 0.97,
    ("resnet50", "serial"): 0.97,
    ("resnet50", "pipelined"): 0.97,
}
CONVOLUTIONS_TARGET = 0.97
LOW = 0.9
"""Kernels below this part of the physical bound are listed with the reason."""


def run(name: str, transfers: str) -> dict[str, Any]:
    """Compile, simulate and check one network; the package's own figures, and times."""
    import numpy as np

    from tilewright.compiler.api import compile
    from tilewright.compiler.pipeline import resolve

    path = model_path(name)
    _, machine = resolve("cambricon-x")
    in_flight = 1 if transfers == "serial" else PIPELINED
    values = {f"move.{move.name}.in_flight": in_flight for move in machine.moves}
    watch = Stopwatch()
    with TemporaryDirectory() as folder:
        executable = compile(
            path, "cambricon-x", values=values, directory=f"{folder}/package", progress=watch
        )
        watch.stop()
        model = onnx.load(path)
        image = models.images(model).astype(np.float32)
        inputs = {executable.inputs[0].name: image}
        start = time.perf_counter()
        outputs = executable.run(inputs)
        simulation = time.perf_counter() - start
        check = executable.check(inputs, outputs)
        found = executable.summary()
    operators = {node.name: node.op_type for node in model.graph.node}
    for kernel in found["kernels"]:
        kernel["convolution"] = "Conv" in [operators.get(node) for node in kernel["nodes"]]
    return {
        **found,
        "network": name,
        "transfers": transfers,
        "passed": check.equal,
        "mismatches": check.mismatches,
        "plan_seconds": watch.seconds["plan"],
        "compile_seconds": sum(watch.seconds.values()),
        "simulate_seconds": simulation,
    }


def figures(kernels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums, efficiencies and deviations over kernels."""
    cycles = sum(kernel["cycles"] for kernel in kernels)
    granule = sum(kernel["granule_bound_cycles"] for kernel in kernels)
    physical = sum(kernel["bound_cycles"] for kernel in kernels)
    # A short kernel may end before the one ahead of it does: it adds nothing then.
    timed = [kernel for kernel in kernels if kernel["cycles"] > 0]
    own = [log(kernel["granule_bound_cycles"] / kernel["cycles"]) for kernel in timed]
    deviations = [abs(kernel["predicted_cycles"] / kernel["cycles"] - 1) for kernel in timed]
    worst = max(range(len(timed)), key=deviations.__getitem__)
    return {
        "kernels": len(kernels),
        "cycles": cycles,
        "physical_bound": physical,
        "granule_bound": granule,
        "physical_efficiency": physical / cycles,
        "granule_efficiency": granule / cycles,
        "mean_granule_efficiency": exp(sum(own) / len(own)),
        "mean_deviation": sum(deviations) / len(deviations),
        "worst_deviation": deviations[worst],
        "worst_kernel": timed[worst]["name"],
    }


def efficiency_rows(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each whole network, and one for its convolutions."""
    rows: list[dict[str, Any]] = []
    for result in results:
        simulated = [kernel for kernel in result["kernels"] if kernel["engine"] == "accelerator"]
        convolutions = [kernel for kernel in simulated if kernel["convolution"]]
        for part, kernels in (("all", simulated), ("convolutions", convolutions)):
            row = {"network": result["network"], "transfers": result["transfers"], "part": part}
            row |= figures(kernels)
            target = TARGETS.get((result["network"], result["transfers"]))
            if part == "all" and result["transfers"] == "serial":
                study = STUDY.get(result["network"], (None, None))
                row["study_physical"], row["study_granule"] = study
            elif target is not None and part == "convolutions":
                target = CONVOLUTIONS_TARGET
            row["target"] = target
            if target is not None:
                row["reached"] = "yes" if row["granule_efficiency"] >= target else "no"
            rows.append(row)
    return rows


def low_rows(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kernels far from the physical bound, and why."""
    rows: list[dict[str, Any]] = []
    for result in results:
        for kernel in result["kernels"]:
            if kernel["engine"] != "accelerator" or not kernel["bound_cycles"]:
                continue
            physical = kernel["bound_cycles"] / kernel["cycles"]
            if physical < LOW:
                rows.append(
                    {
                        "network": result["network"],
                        "transfers": result["transfers"],
                        "kernel": kernel["name"],
                        "cycles": kernel["cycles"],
                        "share": kernel["cycles"] / result["cycles"],
                        "physical_efficiency": physical,
                        "granule_efficiency": kernel["efficiency"],
                        "reason": kernel.get("why_low", ""),
                    }
                )
    return rows


_WHICH = (Column("network", "network"), Column("transfers", "DMA latency"))

EFFICIENCY = (
    *_WHICH,
    Column("part", "part"),
    Column("kernels", "kernels"),
    Column("cycles", "cycles", whole),
    Column("granule_bound", "granule bound", whole),
    Column("physical_bound", "physical bound", whole),
    Column("granule_efficiency", "of granule", percent),
    Column("mean_granule_efficiency", "geo. mean", percent),
    Column("target", "target", percent),
    Column("reached", "reached"),
    Column("study_granule", "study", percent),
    Column("physical_efficiency", "of physical", percent),
    Column("study_physical", "study", percent),
)
DEVIATION = (
    *_WHICH,
    Column("part", "part"),
    Column("mean_deviation", "mean", percent),
    Column("worst_deviation", "worst", percent),
    Column("worst_kernel", "at"),
)
RUNS = (
    *_WHICH,
    Column("passed", "bit for bit", lambda passed: "yes" if passed else "NO"),
    Column("plan_seconds", "plan s", seconds),
    Column("compile_seconds", "compile s", seconds),
    Column("simulate_seconds", "simulate s", seconds),
    Column("dram_bytes", "DRAM MB", megabytes),
    Column("peak_memory_bytes", "memory MB", megabytes),
    Column("lower_bound_memory_bytes", "at least MB", megabytes),
)
REASONS = (
    *_WHICH,
    Column("kernel", "kernel"),
    Column("share", "of all cycles", percent),
    Column("physical_efficiency", "of physical", percent),
    Column("granule_efficiency", "of granule", percent),
    Column("reason", "reason"),
)


def tables(networks: Sequence[str]) -> list[Table]:
    """Measure networks with serial and with pipelined latency."""
    results = [
        alone(CORES, run, name, transfers)
        for name in networks
        for transfers in ("serial", "pipelined")
    ]
    rows = efficiency_rows(results)
    flat = [{k: v for k, v in r.items() if k not in ("kernels", "engines")} for r in results]
    return [
        Table(
            "Efficiency, cycle weighted",
            EFFICIENCY,
            rows,
            (
                "Granule and physical bound: see planning/cost/bounds.py. Serial: a transfer's "
                f"latency begins when the one before has ended; pipelined: {PIPELINED} in flight.",
                "Study: an independent model of the same machine, serial latency, whole network.",
                *_losses(rows),
            ),
        ),
        Table(
            "Predicted against simulated cycles, over kernels",
            DEVIATION,
            rows,
            (
                "Asked for: at most 2 % in the mean, and no kernel beyond 12 %.",
                "Simulated: by how much a kernel moves the end of those before it; predicted: of "
                "the kernel alone. Kernels overlap, by which short ones gain most.",
            ),
        ),
        Table(f"Checks, memory, and time on {CORES} cores", RUNS, flat),
        Table(f"Kernels under {LOW:.0%} of the physical bound", REASONS, low_rows(results)),
    ]


def _losses(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where a network stays behind the study by more than its rounding."""
    found: list[str] = []
    for row in rows:
        for bound in ("granule", "physical"):
            theirs, ours = row.get(f"study_{bound}"), row[f"{bound}_efficiency"]
            if theirs is not None and ours < theirs - 0.005:
                found.append(
                    f"Behind the study: {row['network']}, {percent(ours)} of the {bound} bound "
                    f"where it reports {percent(theirs)}."
                )
    return found
