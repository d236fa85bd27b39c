"""The windows of one row of the kernel, which all pixels of a tile meet before the next row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.windows import Run, Windows


@dataclass(frozen=True)
class Met:
    """Consecutive rows of a tile's result, whose windows meet the image."""

    first: Value
    count: Value
    least: int
    """The least count in any tile."""


def met_in(windows: Windows) -> Met:
    """The rows of the result whose windows meet the image in the kernel's only row.

    Bounds that hold in all tiles take no instruction.
    """
    e, rows, height = windows.e, windows.rows, windows.height
    axis, s = rows.along(windows.box), rows.stride
    if not axis.padded:
        return Met(0, height, 1)
    kinds: list[tuple[int, int, int]] = []
    for before, size, count in rows.tiles:
        first = min(max(-(-before // s), 0), count)
        behind = max(min((size - 1 + before) // s + 1, count), 0)
        kinds.append((first, behind, count))
    first: Value = 0
    if any(first for first, _, _ in kinds):
        first = e.divide(e.add(axis.before, s - 1), s)
        if any(before + s - 1 < 0 for before, _, _ in rows.tiles):
            first = e.maximum(first, 0)
        if any((before + s - 1) // s > count for before, _, count in rows.tiles):
            first = e.minimum(first, height)
    behind = height
    if any(behind < count for _, behind, count in kinds):
        reach = e.add(e.add(axis.size, axis.before), s - 1)
        behind = e.divide(reach, s)
        if any((n + before + s - 1) // s > count for before, n, count in rows.tiles):
            behind = e.minimum(behind, height)
        if any(n + before + s - 1 < 0 for before, n, _ in rows.tiles):
            behind = e.maximum(behind, 0)
    least = min(behind - first for first, behind, _ in kinds)
    return Met(first, e.subtract(behind, first), least)


class RowWindows(Windows):
    """The windows of one row of the kernel in one tile."""

    def begin(self) -> None:
        """Find the pixels of a row that are cut off."""
        self.parts = self._split()
        self.first, self.offset = self._first_whole()

    def emit_row(self, row: Register, body: Callable[[Run], None]) -> None:
        """The runs of one row of the result, whose row of the image begins at ``row``."""
        self._columns(row, 0, 1, None, body)
