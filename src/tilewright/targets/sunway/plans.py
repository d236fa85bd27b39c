"""The plans that networks get by default: with registers exchanged or without, by the lower price.

swATOP's strategies let CPEs share what they load, but cut the result in few ways; the cost model's
own planner tries every grid of parts, for CPEs that share nothing. Both prices are those of one
cost model. The first is found in a tenth of a second, and bounds what the second still looks at.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.chains.cores import plan_chain_cores
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.cores import plan_cores
from tilewright.planning.planners.swatop import Swatop
from tilewright.planning.space.mesh import Mesh

TOP = 16
"""Strategies of which the cost model chooses."""


class Plans:
    """A planner: each kernel alike is planned once."""

    def __init__(self, machine: Machine, mesh: Mesh) -> None:
        self.machine = machine
        self.strategies = Swatop(top=TOP, mesh=mesh)
        chains = partial(plan_chain_cores, mesh=mesh)
        self.planner = Planner(machine, search=self.search, chains=chains)

    chains = True
    """Chains are planned as chains (planning/chains/cores.py)."""

    def __call__(self, kernel: Kernel) -> Plan:
        """The plan; raises TilewrightError where there is none."""
        return self.planner.plan(kernel)

    def search(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The faster of both plans; ``Plan.planner`` says whose it is."""
        budget = budget or Budget()
        try:
            shared = self.strategies(kernel, machine, timer=timer, budget=budget)
        except TilewrightError:
            return plan_cores(kernel, machine, timer=timer, budget=budget)
        below = replace(budget, limit=min(budget.limit, shared.predicted_cycles))
        try:
            alone = plan_cores(kernel, machine, timer=timer, budget=below)
        except TilewrightError:
            alone = shared
        best = min(shared, alone, key=lambda result: result.predicted_cycles)
        return replace(
            best,
            physical_bound=min(shared.physical_bound, alone.physical_bound),
            granule_bound=min(shared.granule_bound, alone.granule_bound),
            candidates=shared.candidates + alone.candidates,
            priced=shared.priced + alone.priced,
        )
