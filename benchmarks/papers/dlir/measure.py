"""What is measured of one network on one machine: words that ran, and plans by every planner."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from copy import copy
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measuring import model_path
from benchmarks.tables.cambricon_x import figures
from tilewright.machine.capabilities import keeps_tensors

if TYPE_CHECKING:
    from tilewright.machine import Machine
    from tilewright.planning import Ask, Plan, Timer
    from tilewright.planning.domain import Kernel
    from tilewright.planning.schedule import Schedule
    from tilewright.targets.base import Target

CAFFE = Path(__file__).parents[3] / "examples" / "caffe"

GREEDY = {
    "one": "greedy{start=one buffers=2}",
    "granule": "greedy{start=granule buffers=2}",
    "single": "greedy{start=granule buffers=1}",
}
"""Greedy planners by the name that rows give them. ``greedy{start=granule}`` takes the faster of
the last two for each kernel."""


def run(network: str, target: str) -> dict[str, Any]:
    """Cycles, bounds and bits of the compiled network, and each planner's cycles and steps."""
    from benchmarks.papers.dlir.bounds import network_bound
    from tilewright.compiler.api import compile
    from tilewright.compiler.pipeline import plans_of, resolve, run_pipeline
    from tilewright.planning import Planner

    model, options = source_of(network)
    found_target, machine = resolve(target)
    known = _remembering(found_target)
    exact: dict[str, tuple[Kernel, Plan]] = {}
    with TemporaryDirectory() as folder:
        compiler = known if keeps_tensors(machine) else _watched(known, exact)
        made = compile(model, compiler, directory=f"{folder}/package", **options)
        random = np.random.default_rng(20240)
        inputs = {
            info.name: random.standard_normal([int(s) for s in info.shape]).astype(info.dtype)
            for info in made.inputs
        }
        checked = made.check(inputs, made.run(inputs))
        found = made.summary()
    network_kernels = [kernel for kernel, _ in exact.values()]
    if keeps_tensors(machine):
        state = run_pipeline(model, known, machine, until="plan", **options)
        network_kernels = [item.kernel for item in state.kernels if item.schedule is not None]
        # Planners are compared on kernels that run alone: nothing is held on the chip for others.
        state = run_pipeline(model, known, machine, until="plan", hold=False, **options)
        planned = [item.kernel for item in state.kernels if item.schedule is not None]
        exact = {kernel.symbol: (kernel, state.plans[kernel.symbol]) for kernel in planned}
    kernels = [kernel for kernel, _ in exact.values()]
    timer = known.timer(machine)
    plans = {"exact": [plan for _, plan in exact.values()]}
    for name, text in GREEDY.items():
        with known.planner(text, machine) as asked:
            greedy = plans_of(kernels, Planner(machine, timer, ask=asked))
        plans[name] = [greedy[kernel.symbol] for kernel in kernels]
    rows = [kernel for kernel in found["kernels"] if kernel["engine"] == "accelerator"]
    return {
        "network": network,
        "target": target,
        "passed": checked.equal and checked.exact,
        "host": sum(1 for k in found["kernels"] if k["engine"] != "accelerator" and k["nodes"]),
        **figures(rows),
        "network_bound": network_bound(network_kernels, machine),
        "latency_bound": sum(least(kernel, machine) for kernel in kernels),
        "milliseconds": 1e3 * sum(row["cycles"] for row in rows) / machine.clock_hz,
        "tilings": sum(space(kernel, machine) for kernel in kernels),
        "plans": {
            name: [(plan.cycles, plan.candidates) for plan in one] for name, one in plans.items()
        },
    }


def _remembering(known: Target) -> Target:
    """The target with a timer that times no schedule twice: planning it takes most of the time."""
    times: dict[tuple[str, Kernel, Schedule], float] = {}

    def timer(machine: Machine) -> Timer | None:
        inner, described = known.timer(machine), machine.model_dump_json()
        if inner is None:
            return None

        def cycles(kernel: Kernel, schedule: Schedule) -> float:
            key = described, kernel, schedule
            if key not in times:
                times[key] = inner(kernel, schedule)
            return times[key]

        return cycles

    remembering = copy(known)
    remembering.timer = timer
    return remembering


def _watched(known: Target, seen: dict[str, tuple[Kernel, Plan]]) -> Target:
    """The target, whose own plans of kernels go into ``seen``."""
    from tilewright.planning import PlanCache, Planner

    @contextmanager
    def planner(text: str, machine: Machine, database: Any = None) -> Generator[Ask | None]:
        cache: PlanCache = {}
        timer = known.timer(machine)

        def asked(kernel: Kernel) -> Plan:
            found = Planner(machine, timer=timer, cache=cache).plan(kernel)
            seen[kernel.symbol] = kernel, found
            return found

        yield asked

    watched = copy(known)
    watched.planner = planner
    return watched


def source_of(network: str) -> tuple[Path, dict[str, Any]]:
    """A network's file and what importing it takes."""
    if network == "cifar10_quick":
        return CAFFE / "cifar10_quick.prototxt", {"shapes": {"data": (1, 3, 32, 32)}}
    return model_path(network), {}


def least(kernel: Any, machine: Any) -> float:
    """The latency bound of a kernel on the best primitive."""
    from benchmarks.papers.dlir.bounds import latency_bound
    from tilewright.planning.planners.schedules import agreeing

    return min(latency_bound(kernel, machine, part) for part in agreeing(kernel, machine))


def space(kernel: Any, machine: Any) -> int:
    """Tilings of a kernel when every size that the greedy planner may take is tried."""
    from tilewright.planning.planners.schedules import agreeing
    from tilewright.planning.space.footprint import uses_of
    from tilewright.planning.space.sizes import tile_sizes

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
    best = [min(pair) for pair in zip(single, double, strict=True)]
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
