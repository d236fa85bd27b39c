"""Levels of on-chip memory: tiles for each memory that operands pass, and tiles within them.

Where operands pass memories on the way to the primitive's own (``Machine.path``), a kernel is cut
several times: into tiles for the memories next to main memory (the outermost level), each of these
into tiles for the memories further in, and so on, down to the tiles that the primitive computes at
once (the innermost level). Operands with a shorter path have buffers of the inner levels alone. A
result has a tile of each level whose memory it passes on its way out; in other memories on its way,
and next to the primitive, it has the innermost tile.

All levels are planned with what plans one. The **inner view** of a machine lacks its outermost
level: what lies there seems to lie in main memory. Where the inner view has several levels, too, it
has an inner view of its own. On the innermost the best tilings are found, as if all fitted the
memories around it. For each of them the **outer view** has the moves of the level around it, and a
compute that takes as long as the tiles within one do, in the pipeline that their buffering allows
(``Cuts.cycles``). The same search so finds the tiles of that level, those around all inner tilings
at once (outer_tiles.py), and these are the inner tilings of the next level. This closed form leaves
out the inner tiles' first loads and last stores; the best are priced by their commands, which have
them (cost/level_commands.py).

A reduction that an outer level cuts leaves its sums in the primitive's memory, so such a tile is
one innermost tile along every dim of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.machine import Machine, Memory, Move, Primitive, Storage
from tilewright.machine.checks import CONSTANT
from tilewright.machine.records import OperandRecord
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import StoredInParts

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


def inner_view(machine: Machine, primitive: Primitive) -> Machine:
    """The machine without its outermost level: operands that pass it seem to come from main memory,
    and results to end there. In the innermost view, half of the memories that results pass, and of
    those of outer levels, is left to other operands."""
    levels = levels_of(machine, primitive)
    main, moves = machine.main, dict[tuple[str, str], Move]()
    paths = paths_of(machine, primitive)
    sources: list[Memory] = []
    for role, path in paths.items():
        if not path:
            continue
        if role == "output":
            kept = list(path[: len(levels)])
            sources.append(machine.memory(kept[-1].target))
            kept[-1] = kept[-1].model_copy(update={"target": main})
        else:
            kept = list(path[1:] if path[0].target in levels[0] and len(path) > 1 else path)
            sources.append(machine.memory(kept[0].source))
            kept[0] = kept[0].model_copy(update={"source": main})
        for hop in kept:
            moves.setdefault((hop.source, hop.target), hop)
    rates = {source.name: source.bytes_per_cycle for source in sources}
    limit = None if None in rates.values() else sum(rate or 0.0 for rate in rates.values())
    shared = set[str]()
    if len(levels) == 1:
        shared = {*levels[0], *(move.target for move in paths.get("output", ())[:-1])}
    memories = tuple(
        memory.model_copy(
            update={"bytes_per_cycle": limit}
            if memory.name == main
            else {
                "bytes": _half(memory) if memory.name in shared else memory.bytes,
                "holds": (),
            }
        )
        for memory in machine.memories
    )
    return machine.model_copy(update={"moves": tuple(moves.values()), "memories": memories})


def _half(memory: Memory) -> int | None:
    if memory.bytes is None or memory.room is None:
        return memory.bytes
    return memory.reserved + max(memory.room // 2 // memory.granule, 1) * memory.granule


def merged_view(machine: Machine, primitive: Primitive) -> Machine | None:
    """The machine with its two outermost levels as one, in whose memories both fit: a tile lies in
    both, and is moved on whole. None where there is one level, or other operands pass the outermost
    one alone.
    """
    levels, results = levels_of(machine, primitive), result_levels(machine, primitive)
    if len(levels) < 2:
        return None
    moves = dict[tuple[str, str], Move]()
    memories = {memory.name: memory for memory in machine.memories}
    for role, path in paths_of(machine, primitive).items():
        hops = path[::-1] if role == "output" else path
        ends = [hop.source if role == "output" else hop.target for hop in hops[:-1]]
        if role == "output":
            both = [results.get(name) for name in ends[:2]] == [0, 1]
        else:
            both = len(ends) > 1 and ends[0] in levels[0] and ends[1] in levels[1]
        if both:
            outer, inner = hops[:2]
            far, near = memories[ends[0]], memories[ends[1]]
            least = min((m for m in (far, near) if m.room is not None), key=_size, default=near)
            granule = max(far.granule, near.granule)
            memories[near.name] = near.model_copy(
                update={"bytes": least.bytes, "reserved": least.reserved, "granule": granule}
            )
            whole = outer.model_copy(
                update={
                    "source": inner.source if role == "output" else outer.source,
                    "target": outer.target if role == "output" else inner.target,
                    "bytes_per_cycle": min(outer.bytes_per_cycle, inner.bytes_per_cycle),
                    "latency": outer.latency + inner.latency,
                    "in_flight": min(outer.in_flight, inner.in_flight),
                }
            )
            path = (whole, *hops[2:])[:: -1 if role == "output" else 1]
        elif ends and ends[0] in levels[0]:
            return None
        for hop in path:
            moves.setdefault((hop.source, hop.target), hop)
    update = {"moves": tuple(moves.values()), "memories": tuple(memories.values())}
    return machine.model_copy(update=update)


def _size(memory: Memory) -> int:
    return memory.room or 0


def on_the_way(
    layout: Layout, shape: Sequence[int], access: Sequence[Affine], whole: Sequence[str]
) -> tuple[int, ...]:
    """Per axis of an operand, the indices that pass memories together on the way to a primitive:
    whole blocks, and all of an axis along a dim that the primitive's tiles cover ``whole``."""
    axes = zip(shape, access, layout.blocks, strict=True)
    return tuple(
        block if set(axis.dims).isdisjoint(whole) else extent for extent, axis, block in axes
    )


def outer_view(
    machine: Machine, primitive: Primitive, multiples: Mapping[str, int]
) -> tuple[Machine, Primitive]:
    """The machine and the primitive as the tiles of the outermost level see them.

    ``multiples`` are the sizes of the tiles within. What has no buffer of the outermost level
    passes through a memory without a limit; results leave it while others are computed.
    """
    main, moves = machine.main, dict[tuple[str, str], Move]()
    memories = {m.name: m.model_copy(update={"holds": ()}) for m in machine.memories}
    outermost, results = levels_of(machine, primitive)[0], result_levels(machine, primitive)
    operands: dict[str, Storage] = {}
    for role, path in paths_of(machine, primitive).items():
        storage = primitive.operands[role]
        outputs = role == "output"
        if not path:
            operands[role] = storage
            continue
        hop = path[-1] if outputs else path[0]
        inside = hop.source if outputs else hop.target
        staged = results.get(inside) == 0 if outputs else len(path) > 1 and inside in outermost
        if not staged:
            inside = f"{storage.memory}-of-{role}" if outputs else f"{storage.memory}-of-inputs"
            memories[inside] = Memory(name=inside)
        ends = (inside, main) if outputs else (main, inside)
        moves.setdefault(ends, hop.model_copy(update={"source": ends[0], "target": ends[1]}))
        operands[role] = Storage(
            memory=inside,
            element_bytes=storage.element_bytes,
            joined=storage.joined,
            own=StoredInParts() if outputs and not staged else OperandRecord(),
        )
    view = machine.model_copy(
        update={"moves": tuple(moves.values()), "memories": tuple(memories.values())}
    )
    update = {"operands": operands, "multiples": dict(multiples), "limits": {}}
    return view, primitive.model_copy(update=update)
