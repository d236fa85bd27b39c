"""Dependence tokens: what they say, and how to make them.

Every ordered pair of classes has a queue of tokens that are all alike. An instruction whose ``put``
names another class leaves a token for it when it is done; one whose ``take`` names a class waits
for a token from it and uses it up. So the n-th take of a pair waits for the n-th put, and any
counted wait can be said: "the first n instructions of that engine have completed".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.operations import Operation

CLASSES = len(CATEGORIES)


@dataclass(frozen=True)
class Matched:
    """Tokens of a program, matched."""

    waits: NDArray[np.int64]
    """[operations, classes]: instructions of that class which must have completed before."""
    starved: tuple[Problem, ...]
    """Instructions that wait for a token which nothing puts (``program-deadlock``)."""
    left: tuple[Problem, ...]
    """Tokens that nothing takes (``program-token``)."""


def numbers(engines: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each instruction among those of its engine, from 1."""
    counted = np.zeros(len(engines), np.int64)
    for engine in range(CLASSES):
        mine = np.flatnonzero(engines == engine)
        counted[mine] = np.arange(1, len(mine) + 1)
    return counted


def match(operations: Sequence[Operation]) -> Matched:
    """The n-th take of each pair of classes with the n-th put."""
    engines = np.array([operation.engine for operation in operations], np.int64)
    put, take = (np.array([op.fields[n] for op in operations], np.int64) for n in ("put", "take"))
    completed, waits = numbers(engines), np.zeros((len(operations), CLASSES), np.int64)
    starved: list[Problem] = []
    left: list[Problem] = []
    for source, target in permutations(range(CLASSES), 2):
        given = np.flatnonzero((engines == source) & (put >> target & 1 == 1))
        taken = np.flatnonzero((engines == target) & (take >> source & 1 == 1))
        both = min(len(given), len(taken))
        waits[taken[:both], source] = completed[given[:both]]
        pair = f"from {CATEGORIES[source]} to {CATEGORIES[target]}"
        reason = f"waits for token {both + 1} {pair}, and only {both} are put"
        starved += [
            Problem("program-deadlock", reason, operations[number].name)
            for number in taken[both:].tolist()
        ]
        reason = f"puts a token {pair} that nothing takes"
        left += [
            Problem("program-token", reason, operations[number].name)
            for number in given[both:].tolist()
        ]
    return Matched(waits, tuple(starved), tuple(left))


def execution_order(operations: Sequence[Operation]) -> list[int]:
    """An order that engines and tokens allow: program order where it is one.

    Raises TilewrightError (``program-deadlock``) where an instruction waits for ever.
    """
    matched = match(operations)
    if matched.starved:
        raise TilewrightError(matched.starved)
    queues: list[list[int]] = [[] for _ in range(CLASSES)]
    for operation in operations:
        queues[operation.engine].append(operation.number)
    waits = matched.waits.tolist()
    done = [0] * CLASSES
    order: list[int] = []
    while len(order) < len(operations):
        heads = [queue[done[e]] for e, queue in enumerate(queues) if done[e] < len(queue)]
        ready = [
            head for head in heads if all(w <= d for w, d in zip(waits[head], done, strict=True))
        ]
        if not ready:
            raise refuse(
                "program-deadlock",
                "waits for ever: in a cycle, for itself",
                operations[min(heads)].name,
            )
        order.append(min(ready))
        done[operations[order[-1]].engine] += 1
    return order


def tokens_for(
    engines: Sequence[int], needs: Iterable[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    """The take and put masks, own class included, that order every (producer, consumer) of needs.

    Producers and consumers are instructions by number, of different engines, the producer the
    earlier one. A need that an earlier one of its pair of classes implies costs nothing; what is
    left is one put and one take each.
    """
    take = [1 << engine for engine in engines]
    put = list(take)
    last: dict[tuple[int, int], int] = {}
    for producer, consumer in sorted(needs, key=lambda need: (need[1], -need[0])):
        if producer >= consumer or engines[producer] == engines[consumer]:
            raise ValueError(f"{consumer} cannot wait for {producer}")
        pair = (engines[producer], engines[consumer])
        if last.get(pair, -1) >= producer:
            continue
        last[pair] = producer
        put[producer] |= 1 << engines[consumer]
        take[consumer] |= 1 << engines[producer]
    return take, put
