"""The questions that planning asks the records of one family of machines (machine/records.py).

planning/caches.py has what it asks machines that compute in place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from tilewright.machine import Machine
from tilewright.machine.records import MachineRecord, PrimitiveRecord
from tilewright.planning.domain import Kernel
from tilewright.planning.footprint import Ints
from tilewright.planning.nests import Arrangement
from tilewright.planning.space import Space


class FormsKernels(MachineRecord):
    """A machine that is planned for with other dims than an operation's own."""

    @abstractmethod
    def formed(self, kernel: Kernel, machine: Machine) -> Kernel:
        """The kernel with the dims that it is cut along."""


class TakesTurns(PrimitiveRecord):
    """A primitive that needs fewer slots than its operands' moves seem to ask for."""

    @abstractmethod
    def slots(self, space: Space, arrangement: Arrangement) -> Mapping[str, Ints]:
        """Slots of every operand that is moved, as far as its moves are concerned."""


__all__ = ["FormsKernels", "TakesTurns"]
