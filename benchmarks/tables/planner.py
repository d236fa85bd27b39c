"""planner: size of the spaces searched, and the time it takes on one core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.measuring import Stopwatch, alone, model_path
from benchmarks.report import Column, Table, percent, seconds, whole

TITLE = "Planning on one core"

NETWORKS = ("lenet5", "alexnet", "vgg16", "resnet50", "googlenet", "mobilenet_v2")

TARGETS = ("cambricon-x", "cpu")

LIMIT = {("resnet50", "cambricon-x"): 5.0}
"""Seconds that the project allows."""


def run(name: str, target: str) -> dict[str, Any]:
    """Plan one network."""
    from tilewright.compiler.pipeline import resolve, run_pipeline

    watch = Stopwatch()
    state = run_pipeline(model_path(name), *resolve(target), progress=watch, until="plan")
    watch.stop()
    plans = list(state.plans.values())
    # Kernels alike are planned once: the others are found without a search.
    searched = [plan for plan in plans if plan.seconds > 0]
    slowest = max(searched, key=lambda plan: plan.seconds)
    symbol = next(symbol for symbol, plan in state.plans.items() if plan is slowest)
    return {
        "network": name,
        "target": target,
        "kernels": len(plans),
        "distinct": len(searched),
        "candidates": sum(plan.candidates for plan in searched),
        "largest": max(plan.candidates for plan in searched),
        "priced": sum(plan.priced for plan in searched),
        "timed": sum(plan.timed for plan in searched),
        "complete": sum(plan.complete for plan in searched) / len(searched),
        "seconds": watch.seconds["plan"],
        "cpu_seconds": watch.cpu_seconds["plan"],
        "limit": LIMIT.get((name, target)),
        "slowest_seconds": slowest.seconds,
        "slowest": symbol,
    }


COLUMNS = (
    Column("network", "network"),
    Column("target", "target"),
    Column("kernels", "kernels"),
    Column("distinct", "distinct"),
    Column("candidates", "tilings", whole),
    Column("largest", "largest space", whole),
    Column("priced", "schedules priced", whole),
    Column("timed", "timed", whole),
    Column("complete", "searched whole", percent),
    Column("seconds", "seconds", seconds),
    Column("cpu_seconds", "of them busy", seconds),
    Column("limit", "limit", seconds),
    Column("slowest_seconds", "slowest s", seconds),
    Column("slowest", "kernel"),
)


def tables(networks: Sequence[str]) -> list[Table]:
    """Plan networks for every target."""
    rows = [alone(1, run, name, target) for target in TARGETS for name in networks]
    remarks = (
        "Seconds are of the whole planning stage, the timing of candidates included; the first "
        "use of the compiled timing core is in it. Of them busy: those in which the process had "
        "the core, which other programs want as well.",
        "An independent exhaustive search of the same kind took 1.5 to 12 s a network.",
    )
    return [Table("Spaces and time", COLUMNS, rows, remarks)]
