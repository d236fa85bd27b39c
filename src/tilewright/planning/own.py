"""The questions that planning asks the records of one family of machines (machine/records.py).

space/nests.py has the one about slots, planners/caches.py what machines that compute in place are
asked.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.machine import Machine, Primitive, Storage
from tilewright.machine.records import MachineRecord, MemoryRecord, OperandRecord, PrimitiveRecord

if TYPE_CHECKING:
    from tilewright.planning.domain import Kernel


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


class CachedMemory(MemoryRecord):
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
        """Return True if one core computes the kernel while the others wait."""
        return False


class StoresTiles(OperandRecord):
    """An operand whose constants may be stored in main memory tile by tile."""

    @abstractmethod
    def lies_by_tile(self) -> bool:
        """Return True if they are: each tile is one contiguous block."""


def shared_cache(machine: Machine) -> SharedCache | None:
    """The cache in front of a machine's main memory that all cores share; None if there is none."""
    own = machine.memory(machine.main).own
    return own.shared_cache() if isinstance(own, CachedMemory) else None


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
