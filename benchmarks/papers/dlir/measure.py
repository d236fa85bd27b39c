"""What is measured of one network on one machine: words that ran, and plans by every planner."""

from __future__ import annotations

from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measuring import model_path
from benchmarks.tables.cambricon_x import figures

CAFFE = Path(__file__).parents[3] / "examples" / "caffe"

PLANNERS = {
    "exact": "exact",
    "one": "greedy{start=one buffers=2}",
    "granule": "greedy{start=granule buffers=2}",
    "single": "greedy{start=granule buffers=1}",
    "automatic": "greedy{start=granule}",
}
"""Planners by the name that rows give them."""


def run(network: str, target: str) -> dict[str, Any]:
    """Cycles, bounds and bits of the compiled network, and each planner's cycles and steps."""
    from tilewright.compiling import compile
    from tilewright.driver import plans_of, resolve, travel
    from tilewright.planning import Plan

    model, options = source_of(network)
    with TemporaryDirectory() as folder:
        made = compile(model, target, directory=f"{folder}/package", **options)
        random = np.random.default_rng(20240)
        inputs = {
            info.name: random.standard_normal([int(s) for s in info.shape]).astype(info.dtype)
            for info in made.inputs
        }
        checked = made.check(inputs, made.run(inputs))
        found = made.summary()
    known, machine = resolve(target)
    work = travel(model, known, machine, until="plan", **options)
    kernels = [item.kernel for item in work.kernels if item.schedule is not None]
    timer = known.timer(machine)
    plans: dict[str, dict[str, Plan]] = {}
    for name, text in PLANNERS.items():
        if name == "exact":
            plans[name] = dict(work.plans)
            continue
        with known.planner(text, machine) as asked:
            plans[name] = plans_of(kernels, machine, asked, timer)
    rows = [kernel for kernel in found["kernels"] if kernel["engine"] == "accelerator"]
    return {
        "network": network,
        "target": target,
        "passed": checked.passed and checked.exact,
        "host": sum(1 for k in found["kernels"] if k["engine"] != "accelerator" and k["nodes"]),
        **figures(rows),
        "latency_bound": sum(least(kernel, machine) for kernel in kernels),
        "milliseconds": 1e3 * sum(row["cycles"] for row in rows) / machine.clock_hz,
        "tilings": sum(space(kernel, machine) for kernel in kernels),
        "plans": {
            name: [(plan.cycles, plan.candidates) for plan in one.values()]
            for name, one in plans.items()
        },
    }


def source_of(network: str) -> tuple[Path, dict[str, Any]]:
    """A network's file and what importing it takes."""
    if network == "cifar10_quick":
        return CAFFE / "cifar10_quick.prototxt", {"shapes": {"data": (1, 3, 32, 32)}}
    return model_path(network), {}


def least(kernel: Any, machine: Any) -> float:
    """The latency bound of a kernel on the best primitive."""
    from tilewright.planning.bounds import latency_bound
    from tilewright.planning.planners.exact import agreeing

    return min(latency_bound(kernel, machine, part) for part in agreeing(kernel, machine))


def space(kernel: Any, machine: Any) -> int:
    """Tilings of a kernel when every size that the greedy planner may take is tried."""
    from tilewright.planning.footprint import uses_of
    from tilewright.planning.planners.exact import agreeing
    from tilewright.planning.space import tile_sizes

    return sum(
        prod(
            len(sizes)
            for sizes in tile_sizes(
                kernel, primitive, uses_of(kernel, machine, primitive), cut=False, granular=False
            ).values()
        )
        for primitive in agreeing(kernel, machine)
    )


def gains(result: dict[str, Any]) -> dict[str, Any]:
    """What double buffering gains with the granule-aware greedy planner, and when it may be off."""
    single = [cycles for cycles, _ in result["plans"]["single"]]
    double = [cycles for cycles, _ in result["plans"]["granule"]]
    best = [cycles for cycles, _ in result["plans"]["automatic"]]
    return {
        "network": result["network"],
        "target": result["target"],
        "single": sum(single),
        "double": sum(double),
        "gain": sum(single) / sum(double) - 1,
        "best_gain": sum(single) / sum(best) - 1,
        "lost": sum(1 for one, two in zip(single, double, strict=True) if two > one),
        "exact_gain": sum(single) / sum(cycles for cycles, _ in result["plans"]["exact"]) - 1,
    }


def partitioning(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The greedy planner beside the exact one: a row for each start."""
    exact = result["plans"]["exact"]
    rows: list[dict[str, Any]] = []
    for start in ("one", "granule"):
        greedy = result["plans"][start]
        steps = sum(steps for _, steps in greedy)
        looked = sum(steps for _, steps in exact)
        ratios = [mine / best for (mine, _), (best, _) in zip(greedy, exact, strict=True)]
        rows.append(
            {
                "network": result["network"],
                "target": result["target"],
                "start": start,
                "slower": sum(c for c, _ in greedy) / sum(c for c, _ in exact),
                "worst": max(ratios),
                "steps": steps,
                "exact_steps": looked,
                "tilings": result["tilings"],
                "saved": looked / steps,
                "saved_of_all": result["tilings"] / steps,
            }
        )
    return rows
