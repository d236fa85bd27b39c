"""Fusions and residency that follow from primitives, where a machine file says nothing of them.

Where one primitive reads on the chip what another writes, kernels of the two may be one kernel, and
a result may stay from one kernel to others. A file without any ``[fusion.NAME]`` gets a pattern of
two and one of three kernels for each memory that lies between primitives; a memory without the key
``resident`` holds whole inputs and results as far as primitives use it so. A file that says either
is left as it is: ``fusion = {}`` and ``resident = []`` say that there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.machine.fusions import hands_on
from tilewright.machine.patterns import KINDS

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Memory, Primitive

SUBJECTS = tuple(kind for kind in KINDS if kind not in ("any", "norm"))
"""Kinds of implied patterns: norms need whole rows, and join products by patterns of their own."""


def with_implied(machine: Machine, given: Mapping[str, Any]) -> Machine:
    """The machine with what its file, whose tables are ``given``, leaves to the compiler."""
    memories = given.get("memory", {})
    changes: dict[str, Any] = {
        "memories": tuple(
            memory
            if "resident" in memories.get(memory.name, {}) or memory.name == machine.main
            else memory.model_copy(update={"resident": _residents(memory, machine)})
            for memory in machine.memories
        )
    }
    if "fusion" not in given:
        changes["fusions"] = tuple(_fusions(machine))
    return machine.model_copy(update=changes)


def _residents(memory: Memory, machine: Machine) -> tuple[str, ...]:
    """``inputs`` and ``results`` where primitives read the memory, and write it, too; nothing where
    no move leads there from main memory at once, or an operand is padded."""
    if not any((m.source, m.target) == (machine.main, memory.name) for m in machine.moves):
        return ()
    operands = [s for p in machine.primitives for s in p.operands.values()]
    if any(storage.padded and memory.name in storage.places for storage in operands):
        return ()
    reads = any(_reads(primitive, memory.name) for primitive in machine.primitives)
    writes = any(_writes(primitive, memory.name) for primitive in machine.primitives)
    return ("inputs", "results")[: reads + (reads and writes)]


def _reads(primitive: Primitive, memory: str) -> bool:
    storage = primitive.operands.get("input")
    return storage is not None and storage.memory == memory and not storage.gathered


def _writes(primitive: Primitive, memory: str) -> bool:
    storage = primitive.operands.get("output")
    return storage is not None and storage.memory == memory and not storage.converted


def _fusions(machine: Machine) -> Iterator[Any]:
    """Chains of two and of three kernels, for each memory between primitives."""
    from tilewright.machine.model import Fusion

    pairs: dict[str, tuple[set[str], set[str]]] = {}
    for writer in machine.primitives:
        for reader in machine.primitives:
            if hands_on(machine, writer, reader):
                writers, readers = pairs.setdefault(
                    _between(machine, writer, reader), (set(), set())
                )
                writers |= _kinds(writer)
                readers |= _kinds(reader)
    for memory, (writers, readers) in pairs.items():
        parts = [_joined(writers), _joined(writers & readers), _joined(readers)]
        for chain in ((parts[0], parts[2]), tuple(parts)):
            if all(chain):
                name, query = f"chain{len(chain)}-{memory}", " -> ".join(chain)
                yield Fusion(name=name, query=query, between=memory)


def _between(machine: Machine, writer: Primitive, reader: Primitive) -> str:
    """The memory in which one primitive's result lies when the other reads it."""
    places = reader.operands["input"].places
    shared = [name for name in writer.operands["output"].places if name in places]
    return next((name for name in shared if name != machine.main), places[0])


def _kinds(primitive: Primitive) -> set[str]:
    return {kind for kind in SUBJECTS if {*KINDS[kind]} & {*primitive.operations}}


def _joined(kinds: set[str]) -> str:
    return "|".join(kind for kind in SUBJECTS if kind in kinds)
