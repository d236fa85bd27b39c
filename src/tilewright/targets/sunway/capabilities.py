"""The records of SW26010's machines alone."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tilewright.graph.passes.own import OwnPasses
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.machine.model import MAX_VALUE
from tilewright.planning.own import DividesUnlike, StartsCores
from tilewright.planning.space.mesh import divides
from tilewright.targets.sunway.mesh import MESH
from tilewright.targets.sunway.passes.choose_methods import ChooseMethods
from tilewright.targets.sunway.passes.staged_methods import stages_methods


class SunwayMachine(StartsCores, OwnPasses):
    """The facts about core groups as a machine."""

    family: ClassVar[str] = "sunway"

    spawn_cycles: int = Field(default=0, ge=0, le=MAX_VALUE)
    """Cycles to start the CPEs on a kernel and to wait for the last of them."""

    def start_cycles(self) -> int:
        """Return ``spawn_cycles``: the cycles to start the CPEs and await the last one."""
        return self.spawn_cycles

    def method_passes(self, machine: Machine) -> list[PassEntry]:
        """Methods of several kernels."""
        reason = "before layouts: each kernel of a method has its own"
        return [PassEntry(ChooseMethods(), reason)] if stages_methods(machine) else []

    def joins_pixels(self, rows: int, columns: int) -> bool:
        """Return True if all pixels come in eight parts, or rows and columns do not either: 49
        pixels in a row do not (seven of 7), as 7 x 7 they do (4 x 2); eight CPEs share loads."""
        return divides([rows * columns], MESH.side) or not divides([rows, columns], MESH.side)


class SunwayPrimitive(DividesUnlike):
    """A kernel of the CPEs."""

    family: ClassVar[str] = "sunway"

    turns: bool = False
    """True if the CPEs multiply together, each in turn sending its tiles by register communication
    (gemm/turns.py)."""

    def in_turns(self) -> bool:
        """Return ``turns``: True if the CPEs multiply together, each sending its tiles in turn."""
        return self.turns
