"""The time that computes stand still while a result leaves its only slot, whole or in parts.

A tile is computed in parts, one after the other, in the last step of its reduction as in the first
step of the next tile's. Stored whole, the result holds up all of these until it is gone; stored
part by part, each is gone while the others are computed::

    whole:   compute 0  compute 1  store 0 and 1 ...  compute 0  compute 1
    parts:   compute 0  compute 1  compute 0  compute 1
                        store 0 .. store 1 ..

Tiles whose computes stand in no loop of their own are cut into halves for that; their inputs are
loaded as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.machine import Machine, Move, parse_expression
from tilewright.planning.space.footprint import Floats, Ints
from tilewright.planning.space.tilings import Space

HALVES = 2
"""Parts of a tile that is cut for its store: more would gain only where they are shorter than a
latency, and then pay more latencies than they hide."""


def standstill(move: Move, size: Any, compute: Any, parts: Any) -> Floats:
    """Cycles between two tiles in which nothing computes.

    ``size`` are the result's bytes, ``compute`` the cycles of one of its ``parts``. With one
    transfer in flight every part's latency follows the store of the part before; where latencies
    overlap a part waits for its own store alone.
    """
    flow = size / move.bytes_per_cycle
    if move.in_flight > 1:
        return np.maximum(move.latency + flow / parts - (parts - 1) * compute, 0.0)
    return np.maximum(parts * move.latency + flow - 2.0 * (parts - 1) * compute, 0.0)


def faster_in_parts(machine: Machine, move: Move, size: Any, compute: Any, parts: Any) -> Any:
    """Return True if less time is lost when each of ``parts``, of ``compute`` cycles, is stored
    alone.

    It does not where the stores' queue cannot hold them all: the next tile's loads stand behind.
    """
    queued = np.asarray(parts) <= machine.engine(move.engine).queue
    whole = standstill(move, size, parts * compute, 1)
    return queued & (standstill(move, size, compute, parts) < whole)


def halves(space: Space, slots: Mapping[str, Ints]) -> dict[str, Ints]:
    """Columns of the sizes of tiles' halves, by the dims along which some tile is cut.

    A tile is cut where its result has one slot and is stored faster so, along the first dim whose
    halves take as long as the whole, and along which no operand beside the first input's memory
    changes.
    """
    output = next((use for use in space.uses if use.output and use.move is not None), None)
    if not space.machine.part_stores or output is None or output.move is None:
        return {}
    source = next(use.memory for use in space.uses if not use.output)
    if source == output.memory or space.primitive.sizes == "fixed":
        return {}
    fixed = {dim for dim in space.primitive.whole if dim in space.index}
    for use in space.uses:
        if use.move is not None and use.memory not in (source, output.memory):
            fixed |= set(use.operand.dims)
    dims = [dim for dim in space.index if dim in output.operand.dims]
    size = space.box(output) * output.operand.element_bytes
    expression = parse_expression(space.primitive.cycles)
    tile = {dim: space.size(dim) for dim in space.index}
    whole = expression.evaluate(tile)
    faster = faster_in_parts(space.machine, output.move, size, whole / HALVES, HALVES)
    left = (slots[output.name] == 1) & (space.trips_of(dims) > 1) & faster
    parts: dict[str, Ints] = {}
    for dim in dims:
        if dim in fixed or dim in space.kernel.anchor.reduction or not left.any():
            continue
        multiple = space.primitive.multiples.get(dim, 1)
        half = -(-tile[dim] // (HALVES * multiple)) * multiple
        rest = np.maximum(tile[dim] - half, 0)
        both = sum(expression.evaluate(tile | {dim: part}) for part in (half, rest))
        cut = left & (rest > 0) & (both == whole)
        if cut.any():
            parts[dim] = np.where(cut, half, tile[dim])
            left &= ~cut
    return parts
