"""Planning of kernels whose operands stay in main memory, behind caches that hardware manages.

The planners of planning/planners/ cut tiles for memories that software manages. A machine that
computes in place brings planning of its own: its record (``Machine.own``, machine/records.py)
implements ``InPlacePlanning``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.machine.records import MachineRecord
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.schedule import Schedule


class InPlacePlanning(MachineRecord):
    """The questions that shared code asks a machine that computes in place."""

    @staticmethod
    @abstractmethod
    def plan(
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The schedule of least predicted time, the same every time; refuses as ``plan`` does."""

    @staticmethod
    @abstractmethod
    def schedules(kernel: Kernel, machine: Machine, primitive: Primitive) -> Iterator[Schedule]:
        """The space of one kernel on one primitive; nothing where none fits its scratch."""

    @staticmethod
    @abstractmethod
    def ranked(kernel: Kernel, machine: Machine) -> list[tuple[float, float, Schedule]]:
        """The whole space, best first: predicted cycles, bytes of main memory moved, schedule."""

    @staticmethod
    @abstractmethod
    def share(
        kernel: Kernel, machine: Machine, schedule: Schedule, cycles: float
    ) -> tuple[float, Schedule]:
        """Cycles until the last core is done, and the schedule with the loop that the cores share;
        one core is predicted ``cycles``."""


def in_place_planning(machine: Machine) -> InPlacePlanning:
    """The planning of a machine that computes in place; refuses (``plan-machine``) if it has
    none."""
    if not isinstance(machine.own, InPlacePlanning):
        raise refuse(
            "plan-machine",
            f"{machine.name} computes in place, and no target plans for its caches",
            help="place operands in memories that software manages, with moves that lead there",
        )
    return machine.own
