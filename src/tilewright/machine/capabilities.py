"""The optional capabilities of targets: keys of machines that a target must itself support.

Planning prices these keys, or passes act on them, because the lowering or the hardware does
something; where a target does not, the key would make predictions wrong without a word. So every
target states which it implements (``Target.implements``), and machines that use others are refused
when they are read. All other keys hold for every target: the compiler itself sees to them. What one
family of targets alone implements is no key here but a record in its folder (records.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Memory, Move, Primitive, Storage
    from tilewright.machine.records import Record
    from tilewright.machine.synchronisation import Synchronisation

    Part = Machine | Memory | Move | Primitive | Storage | Synchronisation


class Capability(StrEnum):
    """A key that takes a target's support: a key of the machine, or of a kind of part."""

    CORES = "cores"
    SYNCHRONISATION = "synchronisation"
    GRAIN = "synchronisation.grain"
    STALLS = "synchronisation.stalls"
    """Signals take no time of their engine."""
    ISSUER = "synchronisation.issuer"
    """One engine issues the commands of all others."""
    ISSUE_CYCLES = "issue_cycles"
    MEMORY_GROWTH = "memory_growth"
    C = "c"
    """C code of packages, for which all moves and primitives name functions (c_interface.py)."""
    HOLDS = "memory.holds"
    RESIDENT = "memory.resident"
    IN_FLIGHT = "move.in_flight"
    TRANSACTION = "move.transaction"
    EFFICIENCY = "move.efficiency"
    JOINED = "operand.joined"
    CIRCULAR = "operand.circular"
    FILLS = "operand.fills"
    PADDED = "operand.padded"
    AT_STORE = "operand.at_store"
    ISSUE = "primitive.issue"
    ELEMENT = "primitive.element"
    TRANSFORMS = "move.transforms"
    EPILOGUE_ANY = "primitive.epilogue_any"


def records(machine: Machine) -> Iterator[tuple[str, Record]]:
    """The records of a machine that are some family's own, and where: their keys in a file."""
    from tilewright.machine.synchronisation import Synchronisation

    for kind in ("", "memory", "move", "primitive", "operand"):
        for place, part in _parts(machine, kind):
            if not isinstance(part, Synchronisation) and part.own.family:
                yield f"{place}own.{part.own.family}", part.own


def keeps_tensors(machine: Machine) -> bool:
    """Return True if whole tensors may stay in one of its memories from one kernel to others."""
    return any(memory.resident for memory in machine.memories)


def used(machine: Machine) -> Iterator[tuple[Capability, str]]:
    """Each capability that a machine asks for, and where: its key in a machine file."""
    for capability in Capability:
        kind, _, field = capability.rpartition(".")
        for place, part in _parts(machine, kind):
            if getattr(part, field) != type(part).model_fields[field].default:
                yield capability, f"{place}{field}"


def _parts(machine: Machine, kind: str) -> Iterator[tuple[str, Part]]:
    """The parts of one kind, each with the beginning of its keys."""
    if not kind:
        yield "", machine
    elif kind == "synchronisation":
        yield "synchronisation.", machine.synchronisation
    elif kind == "operand":
        for primitive in machine.primitives:
            for role, storage in primitive.operands.items():
                yield f"primitive.{primitive.name}.operands.{role}.", storage
    else:
        for part in {
            "memory": machine.memories,
            "move": machine.moves,
            "primitive": machine.primitives,
        }[kind]:
            yield f"{kind}.{part.name}.", part
