"""Levels of on-chip memory: the memories that operands pass on their way to a primitive's own.

Where operands pass memories (``Machine.path``), a kernel is cut several times: into tiles for the
memories next to main memory (the outermost level), each of these into tiles for the memories
further in, and so on, down to the tiles that the primitive computes at once (the innermost level);
see planning/chains/inner.py. Operands with a shorter path have buffers of the inner levels alone. A
result has a tile of each level whose memory it passes on its way out; in other memories on its way,
and next to the primitive, it has the innermost tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.machine import Machine, Move, Primitive
from tilewright.machine.checks import CONSTANT
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout

Path = tuple[Move, ...]


def paths_of(machine: Machine, primitive: Primitive) -> dict[str, Path]:
    """Role -> the moves that an operand takes, in the order in which data takes them."""
    paths: dict[str, Path] = {}
    for role, storage in primitive.operands.items():
        ends = (machine.home(constant=role in CONSTANT), storage.memory)
        paths[role] = machine.path(*(ends[::-1] if role == "output" else ends))
    return paths


def is_deep(machine: Machine, primitive: Primitive) -> bool:
    """Return True if an operand of a primitive passes a memory on its way."""
    return any(len(path) > 1 for path in paths_of(machine, primitive).values())


def levels_of(machine: Machine, primitive: Primitive) -> tuple[tuple[str, ...], ...]:
    """The memories that operands pass on the way to a primitive, by level, outermost first; the
    innermost level, of the primitive's own memories, is left out.

    A memory from which most moves lead on to the primitive is of the outermost level: in
    ``dram -> l3 -> l2 -> l1`` and ``dram -> w2 -> w1``, ``l2`` and ``w2`` are of one level. Where
    no operand on its way in passes a memory, those that the result passes count.
    """
    paths = paths_of(machine, primitive)
    passed = {role: [hop.target for hop in path[:-1]] for role, path in paths.items()}
    inputs = [memories for role, memories in passed.items() if role != "output"]
    heights: dict[str, int] = {}
    for memories in inputs if any(inputs) else [passed.get("output", [])[::-1]]:
        for height, memory in enumerate(reversed(memories)):
            heights[memory] = max(heights.get(memory, 0), height)
    most = max(heights.values(), default=-1)
    return tuple(
        tuple(memory for memory, its in heights.items() if its == height)
        for height in range(most, -1, -1)
    )


def input_levels(machine: Machine, primitive: Primitive) -> dict[str, int]:
    """The memories that operands pass on their way in, and of which level each is."""
    levels = levels_of(machine, primitive)
    return {memory: number for number, level in enumerate(levels) for memory in level}


def result_levels(machine: Machine, primitive: Primitive) -> dict[str, int]:
    """The memories that a result passes on its way out in tiles of an outer level, and which."""
    levels = levels_of(machine, primitive)
    path = paths_of(machine, primitive).get("output", ())
    known: dict[str, int] = {}
    for level, memories in enumerate(levels):
        # The moves of the innermost level come first.
        hop = len(path) - 1 if level == 0 else min(len(levels) - level, len(path) - 1)
        if hop > 0 and path[hop].source in memories:
            known[path[hop].source] = level
    return known


def on_the_way(
    layout: Layout, shape: Sequence[int], access: Sequence[Affine], whole: Sequence[str]
) -> tuple[int, ...]:
    """Per axis of an operand, the indices that pass memories together on the way to a primitive:
    whole blocks, and all of an axis along a dim that the primitive's tiles cover ``whole``."""
    axes = zip(shape, access, layout.blocks, strict=True)
    return tuple(
        block if set(axis.dims).isdisjoint(whole) else extent for extent, axis, block in axes
    )
