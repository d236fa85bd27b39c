"""More memory is never slower across the points of a sweep.

A plan for some sizes of memories is also one for larger sizes, with the same cycles: its buffers
and what stays on the chip lie where they lay. Searches are not exhaustive, and what one finds for
the larger memory may be a little slower. Such a row takes the figures of the point with less
memory, and says which point that is, so that its plan can be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.machine import Machine
from tilewright.sweeps.rows import Row, Rows, front

_ENERGIES = ("read_pj", "write_pj", "leakage_mw")


def never_slower(rows: Sequence[Row], machine: Machine) -> Rows:
    """The rows, each with the figures of the fastest point of no more memory, and of the same
    values otherwise, that gives the host no more kernels.

    Areas remain those of the row's own memories. Where a memory's energy depends on its bytes rows
    are left as they are, and on machines whose operands stay in main memory.
    """
    if not machine.moves or _energy_of_sizes(machine):
        return Rows(rows)
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(_others(row), []).append(row)
    best = {key: _unbettered(group) for key, group in groups.items()}
    return Rows(_fastest(row, best[_others(row)]) for row in rows)


def _unbettered(rows: Sequence[Row]) -> list[Row]:
    """The planned rows that no other one betters in memory, kernels on the host and seconds."""
    planned = [row for row in rows if row.status == "planned"]
    costs = [[*_sizes(row).values(), row.host_kernels or 0, _seconds(row)] for row in planned]
    return [planned[place] for place in front(np.array(costs))]


def _fastest(row: Row, group: Sequence[Row]) -> Row:
    sizes, best = _sizes(row), row
    for other in group:
        less = _sizes(other)
        if (
            _seconds(other) < _seconds(best)
            and (other.host_kernels or 0) <= (row.host_kernels or 0)
            and row.status == "planned"
            and all(less[key] <= size for key, size in sizes.items())
        ):
            best = other
    if best is row:
        return row
    where = ", ".join(f"{key}={best.values[key]}" for key in sizes)
    return replace(best, values=row.values, area_mm2=row.area_mm2, planned_at=where)


def _seconds(row: Row) -> float:
    """The seconds of a row, with the host's where it has them; infinite if it is refused."""
    seconds = row.seconds if row.total_seconds is None else row.total_seconds
    return float("inf") if seconds is None else seconds


def _sizes(row: Row) -> dict[str, float]:
    """The row's bytes of memories, by key."""
    return {key: float(value) for key, value in row.values.items() if _is_size(key, value)}


def _others(row: Row) -> object:
    """All that a row's point is but for the bytes of memories."""
    others = [(key, v) for key, v in row.values.items() if not _is_size(key, v)]
    sizes = tuple(key for key, value in row.values.items() if _is_size(key, value))
    return row.model, row.planner, tuple(others), sizes


def _is_size(key: str, value: object) -> bool:
    number = isinstance(value, int | float)
    return key.startswith("memory.") and key.endswith(".bytes") and number


def _energy_of_sizes(machine: Machine) -> bool:
    """Return True if energy depends on the bytes of some memory."""
    return any(
        memory.component is not None
        or any("bytes" in str(getattr(memory, key)) for key in _ENERGIES)
        for memory in machine.memories
    )
