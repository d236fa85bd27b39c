"""Schedules that suit a kernel's neighbours.

What is fastest alone need not be so in a network: the first weights and tiles of a kernel load
while the one before it computes, if that leaves them the time and the room. So schedules that take
hardly longer alone (``Plan.near``) are timed between the kernels before and behind::

    k1 alone: A 100, B 101         k0 A k2: 310         k0 B k2: 304      -> B

Kernels are gone through in the order of the network, each beside what has been chosen before.
Those that run while values are held on the chip keep their schedules, which were planned for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tilewright.codegen.program.interface import RunTimer
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.machine import Machine
from tilewright.network.candidates import Trials
from tilewright.network.resident_values import HeldKernel
from tilewright.planning import Plan
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.domain import Kernel

Run = tuple[tuple[Kernel, object, tuple[int, ...]], ...]
"""Kernels in a row without names: what they are, their schedules, and which values they share."""


def beside_neighbours(
    network: NetworkOp,
    machine: Machine,
    kernels: Mapping[str, Kernel],
    plans: Mapping[str, Plan],
    held: Mapping[str, HeldKernel],
    run_timer: RunTimer | None,
) -> dict[str, Plan]:
    """The plans of the kernels that are faster otherwise between their neighbours, by symbols.

    None are where ``run_timer`` cannot tell.
    """
    if run_timer is None or not any(plan.near for plan in plans.values()):
        return {}
    return _Choice(Trials(network, machine, kernels, plans, held), run_timer).run()


@dataclass
class _Choice:
    trials: Trials
    run_timer: RunTimer
    better: dict[str, Plan] = field(default_factory=dict[str, Plan])
    known: dict[Run, float] = field(default_factory=dict[Run, float])
    """Cycles of runs that were timed: networks repeat theirs."""

    def run(self) -> dict[str, Plan]:
        for row in self._rows():
            for number, symbol in enumerate(row):
                self._choose(symbol, row[max(number - 2, 0) : number + 2])
        return self.better

    def _rows(self) -> list[list[str]]:
        """Kernels that run one behind the other, the host none between them."""
        rows: list[list[str]] = [[]]
        for op in self.trials.network.block.ops:
            if not isinstance(op, KernelOp):
                continue
            symbol = op.symbol.data
            if symbol in self.trials.plans and symbol not in self.trials.held:
                rows[-1].append(symbol)
            else:
                rows.append([])
        return [row for row in rows if len(row) > 1]

    def _now(self, symbol: str) -> Plan:
        return self.better.get(symbol) or self.trials.now(symbol)

    def _choose(self, symbol: str, around: Sequence[str]) -> None:
        now = self._now(symbol)
        if not now.near:
            return
        least = self._cycles(around, symbol, now)
        for plan in now.near:
            cycles = self._cycles(around, symbol, plan)
            if cycles < least:
                least, self.better[symbol] = cycles, plan

    def _cycles(self, around: Sequence[str], symbol: str, plan: Plan) -> float:
        """What kernels in a row take, one of them under a plan."""
        plans = {kernel: plan if kernel == symbol else self._now(kernel) for kernel in around}
        key = self._key(plans)
        if key not in self.known:
            trials = self.trials
            try:
                self.known[key] = self.run_timer(
                    [
                        trials.compiled(
                            kernel,
                            plan_of_kernel.schedule,
                            trials.machine,
                            cycles=plan_of_kernel.cycles,
                        )
                        for kernel, plan_of_kernel in plans.items()
                    ]
                )
            except TilewrightError:
                self.known[key] = inf
        return self.known[key]

    def _key(self, plans: Mapping[str, Plan]) -> Run:
        values: dict[str, int] = {}
        key: list[tuple[Kernel, object, tuple[int, ...]]] = []
        for symbol, plan in plans.items():
            kernel = self.trials.kernel(symbol)
            alike, names = canonical(kernel)
            shared = tuple(values.setdefault(name, len(values)) for name in names)
            key.append((alike, renamed(plan.schedule, names), shared))
        return tuple(key)
