"""Search a model's fusions on a target, without compiling it further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from tilewright.compiler.pipeline import Options, Stage, advance, run_pipeline
from tilewright.compiler.state import CompilationState, Model, drop_dead_weights
from tilewright.errors import choose, refuse
from tilewright.graph.dialect import network_of
from tilewright.graph.passes import kernel_pipeline
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.ir.passes import PassEntry
from tilewright.machine import Fusion, Machine
from tilewright.machine.capabilities import keeps_tensors
from tilewright.machine.fusions import unserved_vertex
from tilewright.machine.patterns import PatternError, parse_pattern
from tilewright.network.fusion.cost import CostOracle
from tilewright.network.fusion.run import FusionReport, search_fusions
from tilewright.network.fusion.search import SEARCHES
from tilewright.planning import Planner
from tilewright.system.choices import FUSION_COSTS, SIMULATED
from tilewright.targets.base import Target


def fuse(
    model: Model,
    target: Target,
    machine: Machine,
    *,
    searches: Sequence[str] = tuple(SEARCHES),
    patterns: Sequence[str] = (),
    cost: str = FUSION_COSTS[0],
    **options: Unpack[Options],
) -> FusionReport:
    """The candidates of a model's fusion, with their costs, and the plans of the searches.

    Maps of two computed values (sums) stay kernels of their own here where the machine computes
    them alone, so that the search decides what takes them. ``patterns`` are looked for beside the
    machine's own. Costs are those of the machine's element type, without calibration, from the
    source ``cost``. Plans that have the kernels of a compilation say what stays on the chip for
    several of them, on machines whose memories share. Raises TilewrightError as ``compile`` does,
    ``option-search``, ``option-cost`` and ``option-pattern``.
    """
    for name in searches:
        if name not in SEARCHES:
            raise refuse(
                "option-search", f"there is no search {name!r}", "--search", choose(name, SEARCHES)
            )
    if cost not in FUSION_COSTS:
        reason = f"there is no source {cost[:100]!r}"
        raise refuse("option-cost", reason, "--cost", choose(cost, FUSION_COSTS))
    timer = target.simulator(machine) if cost == SIMULATED else None
    if cost == SIMULATED and timer is None:
        raise refuse(
            "option-cost", f"target {target.name} has no simulator", "--cost", "use closed"
        )
    fusions = [*machine.fusions, *_given(patterns, machine)]
    state = kernels_formed(model, target, machine, **options)
    network, oracle = network_of(state.network), CostOracle(Planner(machine, timer))
    report = search_fusions(network, machine, oracle, searches, fusions, state.progress)
    if keeps_tensors(machine):
        # What stays depends on numbers and schedules: the network is planned as `compile` does.
        state = run_pipeline(model, target, machine, until="plan", **options)
        for name, plan in report.plans.items():
            if plan.kernels == state.plans.keys():
                report.plans[name] = replace(plan, stays=state.staying)
    return report


def kernels_formed(
    model: Model, target: Target, machine: Machine, **options: Unpack[Options]
) -> CompilationState:
    """A model whose kernels are formed as the search takes them."""
    state = run_pipeline(model, target, machine, until="graph passes", **options)
    advance(state, [Stage("kernels", _form_kernels, "graph -> graph of kernels")])
    return state


def _form_kernels(state: CompilationState) -> None:
    """The passes that form kernels, sums left apart."""
    entries = [
        PassEntry(FusePointwise(sums=False), "which product takes a sum is searched")
        if isinstance(entry.step, FusePointwise)
        else entry
        for entry in kernel_pipeline(state.machine)
    ]
    state.runner.run(state.network, entries, "graph-")
    drop_dead_weights(state)


def _given(patterns: Sequence[str], machine: Machine) -> list[Fusion]:
    """Patterns that are no machine's."""
    fusions: list[Fusion] = []
    for number, text in enumerate(patterns, 1):
        try:
            pattern = parse_pattern(text)
        except PatternError as error:
            raise refuse(
                "option-pattern", str(error), f"--pattern {text[:60]!r}", error.help
            ) from None
        if unserved := unserved_vertex(machine, pattern):
            raise refuse("option-pattern", unserved, f"--pattern {text[:60]!r}")
        name = "pattern" if len(patterns) == 1 else f"pattern{number}"
        fusions.append(Fusion(name=name, query=text))
    return fusions
