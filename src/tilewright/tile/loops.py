"""The loops over tiles that a schedule asks for."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.errors import refuse
from tilewright.planning.schedule import Schedule

TileLoop = tuple[str, int, int, str]
"""Dim, end, step, and the memory whose level the loop belongs to."""


def tile_loops(schedule: Schedule, extents: Mapping[str, int], kernel: str) -> list[TileLoop]:
    """The loops of a kernel over dims of these extents, outermost first; those that would run once
    are left out.

    Raises TilewrightError (``schedule-invalid``, of ``kernel``) for dims that the kernel has not,
    dims that occur twice, sizes below 1, and tiles without a loop.
    """

    def invalid(reason: str) -> Exception:
        return refuse("schedule-invalid", reason, kernel)

    size = dict(extents)
    loops: list[TileLoop] = []
    for level in schedule.levels:
        for dim, _ in level.tile:
            if dim not in size:
                raise invalid(f"the kernel has no dim {dim}")
        if len(set(level.order)) != len(level.order):
            raise invalid(f"a dim occurs twice in the order {level.order}")
        for dim in level.order:
            if dim not in size:
                raise invalid(f"the kernel has no dim {dim}")
            step = level.size(dim, size[dim])
            if step < 1:
                raise invalid(f"the tile of {dim} has size {step}")
            if step < size[dim]:
                loops.append((dim, size[dim], step, level.memory))
                size[dim] = step
        for dim, extent in size.items():
            if level.size(dim, extent) < extent:
                raise invalid(
                    f"dim {dim} is tiled by {level.size(dim, extent)} "
                    f"but has no loop in {level.order}"
                )
    return loops


def level_memories(schedule: Schedule, main: str) -> tuple[str, ...]:
    """The memories of a program's levels: those of the kernel that has most, after the grid of
    parts, which are of main memory and around all kernels."""
    grid = [level.memory for level in schedule.levels if level.memory == main]
    every = ([level.memory for level in each.levels] for each in (schedule, *schedule.inner))
    tiled = ([memory for memory in levels if memory not in grid] for levels in every)
    return (*grid, *max(tiled, key=len))
