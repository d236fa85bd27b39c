"""The memory of function tables: which tables it holds, and the loads of those it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lowering.hazards import Hazards, Use
from tilewright.targets.generic.program import Part

TABLE_SLOT = 1024
"""Bytes of the memory that one table takes."""

ALIGNMENT = 64
"""Bytes to which tables are aligned in main memory."""


class TableMemory:
    """Keeps the tables that kernels used last; ``image`` collects all of them for main memory."""

    def __init__(
        self,
        instructions: InstructionSet,
        base: int,
        hazards: Hazards,
        counts: dict[int, int],
    ) -> None:
        self.image = bytearray()
        self._instructions = instructions
        self._base = base
        self._hazards = hazards
        self._counts = counts
        self._images: dict[bytes, int] = {}
        self._slots: dict[bytes, int] = {}
        """Table -> its slot, least recently used first."""

    def load(self, wanted: Sequence[bytes]) -> tuple[dict[bytes, int], list[Part]]:
        """Addresses of tables in their memory, and the loads of those not there yet."""
        if not wanted:
            return {}, []
        memory = self._instructions.machine.memory(TABLES)
        slots = (memory.bytes or 0) // TABLE_SLOT
        if len(wanted) > slots:
            raise refuse(
                "lower-tables",
                f"one kernel needs {len(wanted)} function tables, {TABLES} holds {slots}",
                help=f"set memory.{TABLES}.bytes to {len(wanted) * TABLE_SLOT} or more",
            )
        parts: list[Part] = []
        for data in wanted:
            slot = self._slots.pop(data, None)
            if slot is None:
                if len(self._slots) < slots:
                    slot = next(s for s in range(slots) if s not in self._slots.values())
                else:
                    oldest = next(key for key in self._slots if key not in wanted)
                    slot = self._slots.pop(oldest)
                parts.append(self._load(data, slot * TABLE_SLOT))
            self._slots[data] = slot
        return {data: self._slots[data] * TABLE_SLOT for data in wanted}, parts

    def _load(self, data: bytes, address: int) -> Part:
        machine = self._instructions.machine
        move = machine.move(machine.main, TABLES)
        engines = [engine.name for engine in machine.engines]
        engine = engines.index(move.engine)
        if data not in self._images:
            self._images[data] = len(self.image)
            self.image += data + bytes(-len(data) % ALIGNMENT)
        use = Use(TABLES, address, address + TABLE_SLOT, True)
        columns: dict[str, Any] = {
            "element": 2,
            "size0": len(data) // 2,
            "source.address": self._base + self._images[data],
            "source.stride0": 2,
            "target.address": address,
            "target.stride0": 2,
        }
        for other, count in self._hazards.waits([use], engine, 1).items():
            columns[f"wait.{engines[other]}"] = count
        self._counts[engine] += 1
        self._hazards.add([use], engine, np.full(1, self._counts[engine]))
        # Before the kernel's own commands, whose keys start at 0.
        return Part(self._instructions.for_move(move), columns, np.full(1, -1, np.int64))
