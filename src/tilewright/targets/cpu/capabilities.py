"""The record of the cpu target's machines: its planning behind caches (targets/cpu/planning/)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tilewright.graph.passes.own import OwnPasses
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine, Primitive
from tilewright.numerics.pieces import THREE, TWO
from tilewright.planning.caches import InPlacePlanning
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.passes.separate_padding import SeparatePadding
from tilewright.targets.cpu.planning.behind_cost import BehindCost
from tilewright.targets.cpu.planning.blocks import scratch_elements
from tilewright.targets.cpu.planning.capabilities import CacheFacts, CpuPrimitive, own_of
from tilewright.targets.cpu.planning.cost import cache_levels
from tilewright.targets.cpu.planning.pieces import scratch_words
from tilewright.targets.cpu.planning.planner import plan_cached, ranked, schedules
from tilewright.targets.cpu.planning.sharing import share, slowest


class CpuMachine(CacheFacts, InPlacePlanning, OwnPasses):
    """A processor that computes in place, in C that the compiler writes."""

    family: ClassVar[str] = "cpu"

    def plan(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The schedule of least predicted time (planning/planner.py)."""
        return plan_cached(kernel, machine, timer=timer, budget=budget)

    def schedules(
        self, kernel: Kernel, machine: Machine, primitive: Primitive
    ) -> Iterator[Schedule]:
        """The space of one kernel on one primitive."""
        return schedules(kernel, machine, primitive)

    def ranked(self, kernel: Kernel, machine: Machine) -> list[tuple[float, float, Schedule]]:
        """The whole space, best first."""
        return ranked(kernel, machine)

    def share(
        self, kernel: Kernel, machine: Machine, schedule: Schedule, cycles: float
    ) -> Schedule:
        """The schedule with the loop that the cores share (planning/sharing.py)."""
        return share(kernel, machine, schedule, cycles)

    def slowest(self, kernel: Kernel, machine: Machine, schedule: Schedule, cycles: float) -> float:
        """Cycles until the last core is done."""
        return slowest(kernel, machine, schedule, cycles)

    def rows_apart(self, kernel: Kernel, machine: Machine) -> float:
        """Cycles of the normalisation behind a kernel as one of its own."""
        return BehindCost(kernel, machine).apart()

    def kernel_passes(self) -> list[PassEntry]:
        """Convolutions with little padding."""
        return [PassEntry(SeparatePadding(), "C has a function for each way to meet the border")]

    def near_bytes(self, machine: Machine) -> int:
        """Bytes of the cache before the last one."""
        levels = cache_levels(machine)
        return levels[max(len(levels) - 2, 0)][0]

    def scratch_elements(self, primitive: Primitive, schedule: Schedule, kernel: Kernel) -> int:
        """Elements of scratch that a schedule's instances need."""
        if not own_of(primitive).block_cycles:
            return scratch_elements(primitive, schedule, kernel)
        return scratch_words(kernel, {**kernel.anchor.extents, **dict(schedule.levels[-1].tile)})

    def piece_counts(self, machine: Machine, *, rough: bool) -> tuple[int, ...]:
        """Two, where the machine allows it, and three, on machines with matrix tiles."""
        if not any(own_of(primitive).block_cycles for primitive in machine.primitives):
            return ()
        return (TWO, THREE) if rough or self.pieces == "all" else (THREE,)


__all__ = ["CpuMachine", "CpuPrimitive"]
