"""Graph passes that one family of machines brings itself (machine/records.py)."""

from __future__ import annotations

from abc import abstractmethod

from tilewright.ir import ModulePass
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.machine.records import MachineRecord


class OwnPasses(MachineRecord):
    """A machine for which the pipeline has passes from its target's folder."""

    @abstractmethod
    def layout_passes(self) -> list[PassEntry]:
        """The passes behind assign-layouts, each with its reason."""


def layout_passes(machine: Machine) -> list[PassEntry]:
    """The passes behind assign-layouts that a machine brings."""
    return machine.own.layout_passes() if isinstance(machine.own, OwnPasses) else []


def own_passes(machine: Machine) -> dict[str, type[ModulePass]]:
    """All passes that a machine brings, by name."""
    return {entry.step.name: type(entry.step) for entry in layout_passes(machine)}


__all__ = ["OwnPasses", "layout_passes", "own_passes"]
