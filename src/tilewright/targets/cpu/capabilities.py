"""The record of the cpu target's machines: its planning behind caches (targets/cpu/planning/)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tilewright.graph.dialect import KernelOp
from tilewright.graph.passes.own import OwnPasses
from tilewright.graph.passes.pairs import KernelPair, Trial
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.caches import InPlacePlanning
from tilewright.targets.cpu.passes.choose_methods import ChooseMethods
from tilewright.targets.cpu.passes.fuse_pools import FusePools
from tilewright.targets.cpu.passes.fuse_separable import FuseSeparable
from tilewright.targets.cpu.passes.methods import has_methods, kernels_by_method
from tilewright.targets.cpu.passes.pair_trials import pair_trials
from tilewright.targets.cpu.passes.separate_padding import SeparatePadding
from tilewright.targets.cpu.planning.capabilities import CacheFacts, CpuPrimitive, own_of
from tilewright.targets.cpu.planning.planner import plan_cached, ranked, schedules
from tilewright.targets.cpu.planning.sharing import share


class CpuMachine(CacheFacts, InPlacePlanning, OwnPasses):
    """A processor that computes in place, in C that the compiler writes."""

    family: ClassVar[str] = "cpu"

    plan = staticmethod(plan_cached)
    schedules = staticmethod(schedules)
    ranked = staticmethod(ranked)
    share = staticmethod(share)

    def kernel_passes(self) -> list[PassEntry]:
        """Convolutions with little padding."""
        return [PassEntry(SeparatePadding(), "C has a function for each way to meet the border")]

    def method_passes(self, machine: Machine) -> list[PassEntry]:
        """Methods, and kernels that become one by the method that they have."""
        pairs = PassEntry(FuseSeparable(), "what a pair of convolutions hands on stays in a cache")
        methods = PassEntry(
            ChooseMethods(), "before layouts: each method has weights of a form of its own"
        )
        pools = PassEntry(
            FusePools(), "after methods, which have tiles that windows may lie within"
        )
        primitives = [own_of(primitive) for primitive in machine.primitives]
        return [
            *([pairs] if machine.primitives_for("separable_conv") else []),
            *([methods] if has_methods(machine) else []),
            *([pools] if any(described.pools for described in primitives) else []),
        ]

    def pair_trials(self, pair: KernelPair) -> Iterator[Trial] | None:
        """Pools, and pairs of convolutions (passes/pair_trials.py)."""
        return pair_trials(pair)

    def kernels_by_method(self, kernel: KernelOp, machine: Machine) -> list[Kernel] | None:
        """A kernel in each method of ``choose-methods`` that has a schedule."""
        return kernels_by_method(kernel, machine)


__all__ = ["CpuMachine", "CpuPrimitive"]
