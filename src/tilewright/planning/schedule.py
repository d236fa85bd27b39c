"""Schedules: how one kernel is cut, ordered, buffered and computed on one machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Level:
    """The tiling of one memory level, or of what an engine computes at once of its tile.

    ``tile`` gives the tile size of every dim (a dim that is left out is whole). ``order`` names,
    outermost first, the dims that have a loop at this level.
    """

    memory: str
    tile: tuple[tuple[str, int], ...]
    order: tuple[str, ...]

    def size(self, dim: str, extent: int) -> int:
        """Tile size of ``dim``, at most ``extent``."""
        return min(dict(self.tile).get(dim, extent), extent)


@dataclass(frozen=True)
class Resident:
    """An operand that lies whole in the memory of its buffer, from one kernel to others."""

    operand: str
    address: int
    """Address in that memory of its first byte; the same in all kernels that use it."""
    live_in: bool = False
    """True if an earlier kernel has left it there; otherwise this one loads or computes it."""

    def __str__(self) -> str:
        return f"{self.operand} {'found' if self.live_in else 'stays'} at {self.address}"


@dataclass(frozen=True)
class Schedule:
    """A value: hashable, serialisable, printable.

    ``levels`` run from the outermost memory inwards; the innermost level's tile is what the
    primitive computes at once. ``buffers`` is the number of slots of each operand's buffer next to
    the primitive (1 single, 2 double), ``staged`` that of its buffers in memories on the way there:
    operand, memory, slots.
    """

    primitive: str
    levels: tuple[Level, ...]
    buffers: tuple[tuple[str, int], ...] = ()
    options: tuple[tuple[str, int | str], ...] = ()
    """Choices that belong to the primitive (such as its vectorised dim)."""
    shared: str = ""
    """The dim whose outermost loop the cores share, each a run of its iterations; several dims,
    with spaces between, whose outermost loops they share as one; "" for none."""
    staged: tuple[tuple[str, str, int], ...] = ()
    exchanged: tuple[tuple[str, str], ...] = ()
    """Operands that the cores of a row or of a column of the mesh need alike (``row``, ``column``):
    each loads an equal share of the tile, and gets the others' from them
    (planning/space/mesh.py)."""
    homes: tuple[tuple[str, str], ...] = ()
    """Operands that lie in another memory than the primitive names, and which: an alternative."""
    producers: tuple[Schedule, ...] = ()
    """The schedules by which the kernel's producers compute what one tile reads of them, in
    their order. The slots of their results' buffers are in ``buffers`` and ``staged`` of this
    schedule."""
    kept: tuple[tuple[str, int], ...] = ()
    """Producers' results of which a tile leaves to the next the rows that both read, in a circular
    buffer, and how many rows beyond those that it reads each tile computes, which the next finds.
    The halo of others is computed again."""
    stays: tuple[Resident, ...] = ()
    """The operands, of the producers too, that stay on the chip between kernels. A result that
    stays is not stored."""
    rooms: tuple[tuple[str, int], ...] = ()
    """Memories, each with the number of bytes from its start that all other buffers may take:
    tensors stay after them while the kernel runs."""

    def slots(self, operand: str) -> int:
        """Buffer slots of an operand; 1 unless the schedule says otherwise."""
        return dict(self.buffers).get(operand, 1)

    @property
    def inner(self) -> tuple[Schedule, ...]:
        """The schedules of the producers, and of theirs."""
        return tuple(s for producer in self.producers for s in (producer, *producer.inner))

    def __str__(self) -> str:
        levels = "; ".join(
            f"{level.memory}: "
            + ", ".join(f"{dim}={size}" for dim, size in level.tile)
            + (f" by {' > '.join(level.order)}" if level.order else "")
            for level in self.levels
        )
        double = [name for name, slots in self.buffers if slots > 1]
        double += [f"{name} in {memory}" for name, memory, slots in self.staged if slots > 1]
        options = "".join(f"; {key}={value}" for key, value in self.options)
        return (
            f"{self.primitive} [{levels}]"
            + (f" double {', '.join(double)}" if double else "")
            + "".join(f"; {name} in {memory}" for name, memory in self.homes)
            + options
            + (f"; cores share {self.shared}" if self.shared else "")
            + "".join(f"; {name} by {axis}" for name, axis in self.exchanged)
            + (f"; keeps rows of {', '.join(map(_kept, self.kept))}" if self.kept else "")
            + "".join(f"; {resident}" for resident in self.stays)
            + "".join(f"; from {producer}" for producer in self.producers)
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Schedule:
        """Read what ``to_json`` wrote; raises ValueError on anything else."""
        return _SCHEDULE.validate_python(value)


_SCHEDULE = TypeAdapter(Schedule)


def _kept(result: tuple[str, int]) -> str:
    name, ahead = result
    return f"{name} ({ahead} ahead)" if ahead else name
