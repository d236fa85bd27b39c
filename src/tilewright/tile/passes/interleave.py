"""Decide the order in which the instructions of several computes are issued."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import UnitAttr
from tilewright.machine import Machine
from tilewright.tile.dialect import ComputeOp, ProgramOp
from tilewright.tile.passes.base import TilePass


@dataclass(frozen=True)
class Interleave(TilePass):
    """Marks programs of several computes whose instructions are issued as they can begin.

    Where instructions wait for rows, a compute can begin when the one before it has made its first
    rows. Issued command by command, it would begin when the one before it has hardly an
    instruction left outside of its engine's queue. Each engine keeps its order, so waits mean the
    same.

    Before (queues of 2)::

        conv conv conv conv pool pool       pools wait until the third conv is in its queue

    After::

        conv conv pool conv conv pool
    """

    name = "interleave"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Mark one program if its computes are interleaved."""
        computes = [op for op in program.walk() if isinstance(op, ComputeOp)]
        if machine.synchronisation.by_rows and len(computes) > 1:
            program.interleaved = UnitAttr()
