"""Two levels of on-chip memory: a tile for the memory next to main memory, and tiles within it.

Where operands pass a memory on the way to the primitive's own (``Machine.path``), a kernel is cut
twice: into tiles for the memories next to main memory (the outer level), and each of these into the
tiles that the primitive computes at once (the inner one). Operands with a path of one move, and the
result, have buffers of the inner level alone.

Both levels are planned with what plans one. The **inner view** of a machine has each operand's last
move (the result's first) as if it led from main memory: on it the best inner tilings are found, as
if the outer memory held all. For each of them the **outer view** has the first moves, and a compute
that takes as long as the inner tiles of an outer one do, in the pipeline that their buffering
allows (``Cuts.cycles``). The same search so finds the outer tiles, those around all inner tilings
at once (outer_tiles.py). Their closed form leaves out the inner tiles' first loads and last stores;
the best are priced by their commands, which have them (cost/level_commands.py).

A reduction that the outer level cuts leaves its sums in the primitive's memory, so such an outer
tile is one inner tile along every dim of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.machine import Machine, Memory, Move, Primitive, Storage
from tilewright.machine.records import OperandRecord
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import StoredInParts

Path = tuple[Move, ...]


def paths_of(machine: Machine, primitive: Primitive) -> dict[str, Path]:
    """Role -> the moves that an operand takes, in the order in which data takes them."""
    paths: dict[str, Path] = {}
    for role, storage in primitive.operands.items():
        ends = (machine.main, storage.memory)
        paths[role] = machine.path(*(ends[::-1] if role == "output" else ends))
    return paths


def is_deep(machine: Machine, primitive: Primitive) -> bool:
    """Return True if an operand of a primitive passes a memory on its way."""
    return any(len(path) > 1 for path in paths_of(machine, primitive).values())


def inner_view(machine: Machine, primitive: Primitive) -> Machine:
    """The machine as the inner tiles see it: each operand's move next to the primitive's memory
    leads from, the result's to, main memory. Of memories that results pass, half is left to other
    operands."""
    main, moves = machine.main, dict[tuple[str, str], Move]()
    passed = {move.target for move in paths_of(machine, primitive).get("output", ())[:-1]}
    sources: list[Memory] = []
    for role, path in paths_of(machine, primitive).items():
        if not path:
            continue
        inside = primitive.operands[role].memory
        ends = (inside, main) if role == "output" else (main, inside)
        hop = path[0] if role == "output" else path[-1]
        sources.append(machine.memory(hop.target if role == "output" else hop.source))
        moves.setdefault(ends, hop.model_copy(update={"source": ends[0], "target": ends[1]}))
    rates = {source.name: source.bytes_per_cycle for source in sources}
    limit = None if None in rates.values() else sum(rate or 0.0 for rate in rates.values())
    memories = tuple(
        memory.model_copy(
            update={"bytes_per_cycle": limit}
            if memory.name == main
            else {"bytes": _half(memory) if memory.name in passed else memory.bytes}
        )
        for memory in machine.memories
    )
    return machine.model_copy(update={"moves": tuple(moves.values()), "memories": memories})


def _half(memory: Memory) -> int | None:
    if memory.bytes is None or memory.room is None:
        return memory.bytes
    return memory.reserved + max(memory.room // 2 // memory.granule, 1) * memory.granule


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
    """The machine and the primitive as the outer tiles see them.

    ``multiples`` are the sizes of the inner tile. What has no buffer of the outer level passes
    through a memory without a limit; results leave it while others are computed.
    """
    main, moves = machine.main, dict[tuple[str, str], Move]()
    memories = {memory.name: memory for memory in machine.memories}
    operands: dict[str, Storage] = {}
    for role, path in paths_of(machine, primitive).items():
        storage = primitive.operands[role]
        outputs = role == "output"
        if not path:
            operands[role] = storage
            continue
        hop = path[-1] if outputs else path[0]
        inside = hop.target
        if outputs or len(path) == 1:
            inside = f"{storage.memory}-of-{role}" if outputs else f"{storage.memory}-of-inputs"
            memories[inside] = Memory(name=inside)
        ends = (inside, main) if outputs else (main, inside)
        moves.setdefault(ends, hop.model_copy(update={"source": ends[0], "target": ends[1]}))
        own = StoredInParts() if outputs else OperandRecord()
        operands[role] = Storage(
            memory=inside, element_bytes=storage.element_bytes, joined=storage.joined, own=own
        )
    view = machine.model_copy(
        update={"moves": tuple(moves.values()), "memories": tuple(memories.values())}
    )
    update = {"operands": operands, "multiples": dict(multiples), "limits": {}}
    return view, primitive.model_copy(update=update)
