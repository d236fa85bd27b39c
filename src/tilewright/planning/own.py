"""The questions that planning asks the records of one family of machines (machine/records.py).

planning/planners/caches.py has what it asks machines that compute in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.machine import Machine, Move, Primitive, Storage
from tilewright.machine.records import MachineRecord, MemoryRecord, OperandRecord, PrimitiveRecord

if TYPE_CHECKING:
    from tilewright.planning.domain import Kernel, Operand
    from tilewright.planning.space.cells import Cells
    from tilewright.planning.space.footprint import Floats, Ints, Use
    from tilewright.planning.space.nests import Arrangement
    from tilewright.planning.space.tilings import Space


class FormsKernels(MachineRecord):
    """A machine that is planned for with other dims than an operation's own."""

    @abstractmethod
    def formed(self, kernel: Kernel, machine: Machine) -> Kernel:
        """The kernel with the dims that it is cut along."""


class StartsCores(MachineRecord):
    """A machine whose cores are started for each kernel, and share what they load."""

    @abstractmethod
    def start_cycles(self) -> int:
        """Cycles to start the cores on a kernel and to wait for the last of them."""

    @abstractmethod
    def joins_pixels(self, rows: int, columns: int) -> bool:
        """Return True if one row of all pixels is cut over the cores as well as rows and columns
        are."""


@dataclass(frozen=True)
class SharedCache:
    """A cache in front of main memory that hardware manages and all cores share."""

    bytes: int
    hit_bytes_per_cycle: float
    """The bytes that one core loads from it in a cycle."""


class BehindCache(MemoryRecord):
    """Main memory that may have a cache in front of it that all cores share."""

    @abstractmethod
    def shared_cache(self) -> SharedCache | None:
        """Return the cache, or None. With it, moves of main memory have the rates of each core's
        own path, and ``bytes_per_cycle`` is what all cores share."""


class DividesUnlike(PrimitiveRecord):
    """A primitive that cores may share in another way than each computing its part."""

    def in_turns(self) -> bool:
        """Return True if the cores of a mesh compute it together, each in turn sending its tiles to
        the others of its row and column while all multiply; ``cycles`` are those of one turn.
        Planners that know no mesh leave it out (space/mesh.py)."""
        return False

    def on_one_core(self) -> bool:
        """Return True if one core computes it, and the others wait."""
        return False


class StoresTiles(OperandRecord):
    """An operand whose constants may be stored in main memory tile by tile."""

    @abstractmethod
    def lies_by_tile(self) -> bool:
        """Return True if they are: each tile is one contiguous block."""


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


def shared_cache(machine: Machine) -> SharedCache | None:
    """The cache in front of a machine's main memory that all cores share; None if there is none."""
    own = machine.memory(machine.main).own
    return own.shared_cache() if isinstance(own, BehindCache) else None


def start_cycles(machine: Machine) -> int:
    """Cycles to start a machine's cores on a kernel and to wait for the last of them."""
    return machine.own.start_cycles() if isinstance(machine.own, StartsCores) else 0


def on_one_core(primitive: Primitive) -> bool:
    """Return True if one core computes the primitive where a machine has several."""
    return isinstance(primitive.own, DividesUnlike) and primitive.own.on_one_core()


def in_turns(primitive: Primitive) -> bool:
    """Return True if the cores of a mesh compute the primitive together, in turns."""
    return isinstance(primitive.own, DividesUnlike) and primitive.own.in_turns()


def lies_by_tile(storage: Storage) -> bool:
    """Return True if an operand's constants are stored in main memory tile by tile."""
    return isinstance(storage.own, StoresTiles) and storage.own.lies_by_tile()


__all__ = [
    "BehindCache",
    "Dispatch",
    "DividesUnlike",
    "ExecutesRows",
    "FormsKernels",
    "RowInstructions",
    "SharedCache",
    "StartsCores",
    "StoresTiles",
    "TakesTurns",
    "Transfer",
    "in_turns",
    "lies_by_tile",
    "on_one_core",
    "row_instructions",
    "shared_cache",
    "start_cycles",
]
