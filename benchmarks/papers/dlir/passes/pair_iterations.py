"""DLIR's automatic double buffering: engines overlap in pairs, two iterations at a time."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.papers.dlir.passes.containers import GROUPING
from tilewright.ir import StringAttr, integer
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.tile.dependences import visits
from tilewright.tile.dialect import BufferOp, ProgramOp
from tilewright.tile.passes.base import TilePass


@dataclass(frozen=True)
class PairIterations(TilePass):
    """Lets commands run in the containers that DLIR generates (the thesis' section 5.2.6).

    The thesis merges two iterations of a loop, one of which loads into one half of a buffer while
    the other computes on the other half. Visits that take two slots in turn are these two
    iterations, so the loop stays as it is; with ``halves`` every buffer that is filled more than
    once gets two slots, else buffers keep those that the schedule asked for. The mark on the
    program says that a command also waits for all containers before its own (containers.py).
    Without it, engines run as far ahead as dependences and slots let them, which is how programs
    are made otherwise. Values are the same both ways.

    Before::

        tile.program "k" on "m" [...] {

    After::

        tile.program "k" on "m" [...] attributes {groups = "dlir"} {
    """

    name = "pair-iterations"
    halves: bool = False

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Mark one program."""
        program.properties["groups"] = StringAttr(GROUPING)
        if self.halves:
            for op in program.walk():
                if isinstance(op, BufferOp):
                    op.slots = integer(min(2, visits(op)))


PAIRED = PassEntry(PairIterations(), "after double-buffer, whose slots it takes")
"""DLIR's order in place of ours: ``tile(..., order=PAIRED)``."""
