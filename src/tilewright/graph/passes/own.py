"""Graph passes that one family of machines brings itself (machine/records.py)."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.graph.dialect import KernelOp
from tilewright.graph.passes.pairs import KernelPair, Trial
from tilewright.ir import ModulePass
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.machine.records import MachineRecord
from tilewright.planning.domain import Kernel


class OwnPasses(MachineRecord):
    """A machine for which the pipeline has passes from its target's folder."""

    def kernel_passes(self) -> list[PassEntry]:
        """The passes before partition, each with its reason."""
        return []

    def method_passes(self, machine: Machine) -> list[PassEntry]:
        """The passes between numbers and assign-layouts, which choose how kernels are computed,
        each with its reason."""
        del machine
        return []

    def layout_passes(self) -> list[PassEntry]:
        """The passes after assign-layouts, each with its reason."""
        return []

    def pair_trials(self, pair: KernelPair) -> Iterable[Trial] | None:
        """The forms in which its passes would make one kernel of two, or None where it has none for
        such a pair; why a form is refused is noted in the pair."""
        del pair

    def multiplies_computed_integers(self) -> bool:
        """Return True if both operands of a product of integers may be computed; else one is
        constant."""
        return True

    def kernels_by_method(self, kernel: KernelOp, machine: Machine) -> list[Kernel] | None:
        """A kernel as planning sees it in each method that its passes may choose and that has a
        schedule, or None where there is no choice."""
        del kernel, machine


_NONE = OwnPasses()


def passes_of(machine: Machine) -> OwnPasses:
    """The record of a machine, where it brings passes, or one that brings none."""
    return machine.own if isinstance(machine.own, OwnPasses) else _NONE


def own_passes(machine: Machine) -> dict[str, type[ModulePass]]:
    """All passes that a machine brings, by name."""
    brought = passes_of(machine)
    entries = [*brought.kernel_passes(), *brought.method_passes(machine), *brought.layout_passes()]
    return {entry.step.name: type(entry.step) for entry in entries}
