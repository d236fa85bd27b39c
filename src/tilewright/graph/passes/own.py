"""Graph passes that one family of machines brings itself (machine/records.py)."""

from __future__ import annotations

from tilewright.ir import ModulePass
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.machine.records import MachineRecord


class OwnPasses(MachineRecord):
    """A machine for which the pipeline has passes from its target's folder."""

    def kernel_passes(self) -> list[PassEntry]:
        """The passes before partition, each with its reason."""
        return []

    def layout_passes(self) -> list[PassEntry]:
        """The passes after assign-layouts, each with its reason."""
        return []


def kernel_passes(machine: Machine) -> list[PassEntry]:
    """The passes before partition that a machine brings."""
    return machine.own.kernel_passes() if isinstance(machine.own, OwnPasses) else []


def layout_passes(machine: Machine) -> list[PassEntry]:
    """The passes after assign-layouts that a machine brings."""
    return machine.own.layout_passes() if isinstance(machine.own, OwnPasses) else []


def own_passes(machine: Machine) -> dict[str, type[ModulePass]]:
    """All passes that a machine brings, by name."""
    entries = [*kernel_passes(machine), *layout_passes(machine)]
    return {entry.step.name: type(entry.step) for entry in entries}


__all__ = ["OwnPasses", "kernel_passes", "layout_passes", "own_passes"]
