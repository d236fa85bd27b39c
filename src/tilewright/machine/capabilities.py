"""What a target may do beyond the rest: the keys of machines that take its own support.

Planning prices these keys, or passes act on them, because the lowering or the hardware does
something; where a target does not, the key would make predictions wrong without a word. So every
target states which it implements (``Target.implements``), and machines that use others are refused
when they are read. All other keys hold for every target: the compiler itself sees to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

    from tilewright.machine.model import Machine


class Capability(StrEnum):
    """A key that takes a target's support: a key of the machine, or of a kind of part."""

    CORES = "cores"
    SPAWN_CYCLES = "spawn_cycles"
    ROUNDING = "rounding"
    SYNCHRONISATION = "synchronisation"
    ISSUE_CYCLES = "issue_cycles"
    LATE_LOADS = "late_loads"
    ROW_WAITS = "row_waits"
    PART_STORES = "part_stores"
    PIECES = "pieces"
    MEMORY_GROWTH = "memory_growth"
    WEIGHTS_KEPT = "weights_kept"
    CACHE_COSTS = "cache_costs"
    C = "c"
    """And with it the functions of all moves and primitives (c_interface.py)."""
    HOLDS = "memory.holds"
    SHARES = "memory.shares"
    MANAGED = "memory.managed"
    HIT_BYTES_PER_CYCLE = "memory.hit_bytes_per_cycle"
    """And with it the bytes of the cache."""
    LINEAR = "move.linear"
    IN_FLIGHT = "move.in_flight"
    TRANSACTION = "move.transaction"
    EFFICIENCY = "move.efficiency"
    JOINED = "operand.joined"
    LEAVES = "operand.leaves"
    CIRCULAR = "operand.circular"
    FILLS = "operand.fills"
    ALONE = "primitive.alone"
    ISSUE = "primitive.issue"
    CLIPS = "primitive.clips"
    REPLACES = "primitive.replaces"
    ROLLS = "primitive.rolls"
    ELEMENT = "primitive.element"
    TRANSFORMS = "move.transforms"
    EPILOGUE_ANY = "primitive.epilogue_any"
    POOLS = "primitive.pools"
    ROWS = "primitive.rows"
    SCRATCH = "primitive.scratch"
    FIT = "primitive.fit"
    BLOCK_CYCLES = "primitive.block_cycles"
    DOT = "primitive.dot"
    TEMPORARIES = "primitive.temporaries"


def used(machine: Machine) -> Iterator[tuple[Capability, str]]:
    """Each capability that a machine asks for, and where: its key in a machine file."""
    for capability in Capability:
        kind, _, field = capability.rpartition(".")
        for place, part in _parts(machine, kind):
            if getattr(part, field) != type(part).model_fields[field].default:
                yield capability, f"{place}{field}"


def _parts(machine: Machine, kind: str) -> Iterator[tuple[str, BaseModel]]:
    """The parts of one kind, each with the beginning of its keys."""
    if not kind:
        yield "", machine
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
