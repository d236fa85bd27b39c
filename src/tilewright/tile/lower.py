"""One call from kernel and schedule to a finished tile program."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import ModuleOp
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.tile.build import build_program
from tilewright.tile.decisions import EVERY_DECISION, Decision
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.passes import TilePass, pipeline
from tilewright.tile.tensors import Placement


def tile(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    placements: Mapping[str, Placement] | None = None,
    *,
    check: bool = True,
    order: PassEntry | None = None,
    honours: frozenset[Decision] = EVERY_DECISION,
) -> ProgramOp:
    """The program after all passes; without ``check`` for candidates that are only timed.

    ``order`` decides in what order commands run, in place of our passes; ``honours`` is what the
    target takes from the program (see ``pipeline``).

    Raises TilewrightError if the schedule does not fit the kernel or the machine.
    """
    program = build_program(kernel, schedule, machine, placements)
    for entry in pipeline(machine, order=order, check=check, honours=honours):
        if isinstance(entry.step, TilePass):
            entry.step.run(program, machine)
    return program


def tile_module(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    placements: Mapping[str, Placement] | None = None,
    *,
    honours: frozenset[Decision] = EVERY_DECISION,
) -> ModuleOp:
    """A module with the finished program of one kernel."""
    return ModuleOp([tile(kernel, schedule, machine, placements, honours=honours)])
