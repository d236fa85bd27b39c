"""DLIR's instruction generation: two iterations in a window, units run in pairs of engines.

The thesis (section 5.2.6) merges two iterations of a loop, which use two parts of the buffers in
turn, builds a graph of dependences for each, and generates units from the graphs:

- A **unit** is what one engine does for an iteration: a *sequence container* of its commands. An
  iteration is one compute, with the loads between the compute before and itself and the stores
  between itself and the compute behind.
- The **focus window** holds two iterations. When all units of the first are generated it moves on.
- A unit can be generated if what it depends on has been, and if its engine has nothing to do before
  it. The **resource table** knows what each engine has been given.
- Two such units on different engines form a *parallel container*. Of several, the first found is
  taken; if there is none, the first unit, alone.

A container starts when the one before it has ended. That is what these programs wait for beyond
their dependences: containers are the groups of commands of the grouping ``dlir``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.ir.types import Array
from tilewright.tile.operations import ComputeOp, MoveOp
from tilewright.tile.queues import GROUPINGS, Queues

GROUPING = "dlir"
"""What tile programs call this grouping of commands."""

WINDOW = 2
"""Iterations in focus."""


@dataclass(frozen=True)
class Unit:
    """The commands of one engine for one iteration, which run one after the other."""

    engine: int
    first: int
    """Place of the first command in the engine's queue."""
    count: int
    needs: tuple[int, ...]
    """Per engine, its commands that must have been generated before."""


def units_of(queues: Queues) -> tuple[list[list[Unit]], list[str]]:
    """The units of every iteration in program order, and the engines by number."""
    engines = queues.engines
    commands = [
        op
        for op in queues.commands
        if not (isinstance(op, MoveOp) and op.joined is not None) and queues.order.rows(op).count
    ]
    computes = [queues.order.rows(op).key for op in commands if isinstance(op, ComputeOp)]
    order = np.sort(np.concatenate(computes))
    kind, turn, place = (list[Array]() for _ in range(3))
    needs: list[Array] = []
    for op in commands:
        keys = queues.order.rows(op).key
        behind = isinstance(op, MoveOp) and not op.loads
        at = np.searchsorted(order, keys) - (1 if behind else 0)
        needed = np.zeros((len(keys), len(engines)), np.int64)
        for engine, counts in queues.dependences(op).items():
            needed[:, engines.index(engine)] = counts
        needs.append(needed)
        kind.append(np.full(len(keys), engines.index(op.engine.data)))
        turn.append(np.clip(at, 0, len(order) - 1))
        place.append(queues.position(op))
    kinds, turns, places = np.concatenate(kind), np.concatenate(turn), np.concatenate(place)
    needed = np.concatenate(needs)
    iterations: list[list[Unit]] = [[] for _ in range(len(order))]
    # Within an iteration: what loads for it, the compute, what stores.
    sort = np.lexsort((places, kinds, turns))
    edges = np.flatnonzero(
        np.diff(turns[sort], prepend=-1) | np.diff(kinds[sort], prepend=-1)
    ).tolist()
    for start, end in zip(edges, [*edges[1:], len(sort)], strict=True):
        rows = sort[start:end]
        engine = int(kinds[rows[0]])
        # A store behind the loads on one engine starts a unit of its own.
        for part in np.split(rows, np.flatnonzero(np.diff(places[rows]) != 1) + 1):
            most = tuple(needed[part].max(axis=0).tolist())
            iterations[int(turns[part[0]])].append(
                Unit(engine, int(places[part[0]]), len(part), most)
            )
    return iterations, engines


def generate(iterations: list[list[Unit]], engines: int) -> list[tuple[Unit, ...]]:
    """The containers, in order."""
    counts = [0] * engines
    """The resource table: commands that each engine has been given."""
    window: list[list[Unit]] = [list(units) for units in iterations[:WINDOW]]
    following = len(window)
    containers: list[tuple[Unit, ...]] = []
    while window:
        ready = [
            unit
            for units in window
            for unit in units
            if unit.first == counts[unit.engine]
            and all(n <= g for n, g in zip(unit.needs, counts, strict=True))
        ]
        if not ready:
            # A unit whose engine owes something to a later iteration: the window must widen.
            window.append(list(iterations[following]))
            following += 1
            continue
        pairs = (
            (a, b) for i, a in enumerate(ready) for b in ready[i + 1 :] if a.engine != b.engine
        )
        chosen = next(pairs, (ready[0],))
        containers.append(chosen)
        for unit in chosen:
            counts[unit.engine] += unit.count
            next(units for units in window if unit in units).remove(unit)
        while window and not window[0]:
            window.pop(0)
            if following < len(iterations) and len(window) < WINDOW:
                window.append(list(iterations[following]))
                following += 1
    return containers


def containers_of(queues: Queues) -> Mapping[str, Array]:
    """Engine -> for each command in its queue, the number of its container; ascending."""
    iterations, engines = units_of(queues)
    numbers = {name: np.zeros(len(queues.keys(name)), np.int64) for name in engines}
    for number, container in enumerate(generate(iterations, len(engines))):
        for unit in container:
            numbers[engines[unit.engine]][unit.first : unit.first + unit.count] = number
    return numbers


GROUPINGS[GROUPING] = containers_of
