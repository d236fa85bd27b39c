"""The cost of a group of kernels as one fused kernel, and of its kernels unfused.

One oracle, whatever the source of the numbers: the planner's own cost (``closed``), on all cores of
a machine that has several, or the best few schedules timed by the target's simulator
(``simulated``). Kernels that are alike are asked about once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.passes.fuse_pointwise import MAPS
from tilewright.graph.passes.own import passes_of
from tilewright.graph.passes.reanchoring import plain_kernel
from tilewright.machine import Machine, Primitive
from tilewright.network.fusion.forms import described, forms_of
from tilewright.planning import Planner
from tilewright.planning.canonical import canonical
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.caches import InPlacePlanning
from tilewright.planning.space.parts import as_planned


@dataclass
class CostOracle:
    """Cycles of kernels of a network whose kernels are formed, alone and in groups.

    With a planner that has a timer the source is ``simulated``.
    """

    planner: Planner
    placed: bool = False
    """True if kernels have their numbers and layouts already: they are priced as they are."""
    kept: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])
    """By the symbols of a group that was priced, of how many results rows stay on the chip from
    tile to tile."""
    _alone: dict[object, float] = field(default_factory=dict[object, float])

    @property
    def machine(self) -> Machine:
        """The machine that kernels are planned for."""
        return self.planner.machine

    def cost(self, group: Sequence[KernelOp]) -> float | Problem:
        """Cycles of a group, in the network's order, as one kernel; of a single kernel, alone.

        A problem says why the group cannot be one kernel: which form is missing, or which
        memory is too small. A kernel alone that no schedule fits raises TilewrightError.
        """
        if len(group) == 1:
            return self._kernel(group[0])
        costs: list[tuple[float, int]] = []
        problem: Problem | None = None
        with forms_of(group, self.machine) as trials:
            if isinstance(trials, Problem):
                return trials
            for trial, primitive in trials:
                try:
                    plain = self._described(trial, primitive)
                    costs.append((self.fastest(trial, plain), self._kept(plain)))
                except TilewrightError as error:
                    problem = error.problems[0]
        if not costs:
            return problem or Problem("fusion-form", "there is no form")
        cycles, self.kept[tuple(kernel.symbol.data for kernel in group)] = min(costs)
        return cycles

    def _described(self, kernel: KernelOp, primitive: Primitive | None = None) -> Kernel:
        if self.placed:
            return as_planned(plain_kernel(kernel), self.machine)
        return described(kernel, self.machine, primitive)

    def _kept(self, kernel: Kernel) -> int:
        """Return the number of results in a chain whose rows stay on chip, by the priced plan."""
        if not kernel.producers:
            return 0
        schedule = self.planner.plan(kernel).schedule
        return sum(len(level.kept) for level in (schedule, *schedule.inner))

    def _kernel(self, kernel: KernelOp) -> float:
        """A kernel alone, by the fastest method that the machine has for it."""
        anchor = kernel.anchor
        plain = self._described(kernel)
        # Where windows lie decides which methods there are, and is no part of planning's kernel.
        pads = anchor.integers("pads") if isinstance(anchor, ConvOp) else ()
        key = canonical(plain)[0], pads
        if key not in self._alone:
            self._alone[key] = self.fastest(kernel, plain)
        return self._alone[key]

    def fastest(self, kernel: KernelOp, plain: Kernel) -> float:
        """Cycles of a kernel by the fastest of the methods that it may be computed by."""
        forms = None
        # Each method can have maps after it; the other operations have been given their method.
        if self.planner.timer is None and all(isinstance(op, MAPS) for op in kernel.operations[1:]):
            forms = passes_of(self.machine).kernels_by_method(kernel, self.machine)
        if forms is None:
            return self._planned(plain)
        return min(map(self._planned, forms), default=inf)

    def _planned(self, kernel: Kernel) -> float:
        schedule_plan = self.planner.plan(kernel)
        cycles = schedule_plan.cycles
        if cycles == inf:
            raise refuse("fusion-simulated", "no schedule of it can be simulated", kernel.symbol)
        own = self.machine.own
        if self.planner.timer is None and isinstance(own, InPlacePlanning):
            return own.share(kernel, self.machine, schedule_plan.schedule, cycles)[0]
        return cycles
