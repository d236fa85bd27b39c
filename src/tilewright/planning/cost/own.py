"""The questions about the cost of tilings that planning asks one family of machines alone.

planning/own.py has the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.machine import Machine, Move
from tilewright.machine.records import MachineRecord, PrimitiveRecord

if TYPE_CHECKING:
    from tilewright.planning.domain import Operand
    from tilewright.planning.space.cells import Cells
    from tilewright.planning.space.footprint import Floats, Ints, Use
    from tilewright.planning.space.nests import Arrangement
    from tilewright.planning.space.tilings import Space


class TakesTurns(PrimitiveRecord):
    """A primitive that needs fewer slots than its operands' moves seem to ask for."""

    @abstractmethod
    def slots(self, space: Space, arrangement: Arrangement) -> Mapping[str, Ints]:
        """Slots of every operand that is moved, as far as its moves are concerned."""


@dataclass(frozen=True)
class Transfer:
    """A transfer of a tile; columns."""

    move: Move
    lines: Floats
    """The number of instructions of the transfer."""
    size: Floats
    """The bytes of the transfer."""
    stores: bool


class Dispatch(ABC):
    """The cost of an in-order dispatcher of instructions of rows, for the tiles of a space."""

    transfers: dict[str, Floats]
    """Per cell, the instructions of a transfer of each operand."""

    @abstractmethod
    def further_latency(self, use: Use, size: Floats) -> Floats:
        """Per cell, the latencies of a transfer's rows that its bytes and the first do not hide."""

    @abstractmethod
    def busy(self, use: Use, size: Floats) -> Floats:
        """Per cell, the time that a transfer's rows take of their engine, one after the other."""

    @abstractmethod
    def turns(self, row: Ints, compute: Floats, moved: Sequence[Transfer]) -> Floats:
        """Cycles from a tile, which takes ``compute``, to the next for which engines that take
        turns ask."""


class RowInstructions(ABC):
    """Moves and computes that are an instruction for each row.

    An instruction waits for no more than the rows that it touches, so that computes that hand on
    results on the chip overlap within a tile. A chain's instructions are dispatched in the order in
    which they can begin.
    """

    @abstractmethod
    def dispatch(self, space: Space, cells: Cells) -> Dispatch:
        """The dispatcher's cost of the tiles of a space."""

    @abstractmethod
    def axis(self, operand: Operand) -> int | None:
        """The axis along which a move of an operand has an instruction for each index."""

    @abstractmethod
    def latency(self, move: Move, rows: Ints, size: Ints) -> Floats:
        """Latency of a transfer of so many rows and bytes, beside the time in which its bytes
        flow."""


class ExecutesRows(MachineRecord):
    """A machine whose instructions are of rows where waits are (``Synchronisation.by_rows``)."""

    @abstractmethod
    def row_instructions(self) -> RowInstructions:
        """Its instructions of rows."""


def row_instructions(machine: Machine) -> RowInstructions | None:
    """The instructions of rows of a machine; None where instructions are of whole tiles."""
    if isinstance(machine.own, ExecutesRows) and machine.synchronisation.by_rows:
        return machine.own.row_instructions()
    return None


__all__ = [
    "Dispatch",
    "ExecutesRows",
    "RowInstructions",
    "TakesTurns",
    "Transfer",
    "row_instructions",
]
