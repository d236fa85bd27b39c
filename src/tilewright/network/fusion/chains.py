"""Forming the chains that a machine gains by: the fusion search, applied."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.passes.enclosing import chained
from tilewright.network.fusion.cost import CostOracle
from tilewright.network.fusion.run import search_fusions
from tilewright.planning import Planner
from tilewright.runtime.executable import Progress, quiet


def form_chains(
    network: NetworkOp,
    planner: Planner,
    apart: Collection[str] = (),
    progress: Progress = quiet,
) -> list[KernelOp]:
    """Make one kernel of each group that costs less so; returns the new kernels.

    Groups are those of the machine's fusions that name a memory ``between`` their kernels. The
    network's kernels have their numbers and layouts. Costs are the planner's by its cost model.
    Kernels whose symbols are ``apart`` are the last of no group: the target has refused them so.
    """
    machine = planner.machine
    fusions = [fusion for fusion in machine.fusions if fusion.between]
    if not fusions:
        return []
    asked = planner if planner.timer is None else planner.by_cost()
    oracle = CostOracle(asked, placed=True)
    report = search_fusions(network, machine, oracle, ("exact",), fusions, progress)
    kernels = {op.symbol.data: op for op in network.kernels}
    return [
        chained([kernels[symbol] for symbol in group.kernels])
        for group in report.plans["exact"].groups
        if group.kernels[-1] not in apart
    ]
