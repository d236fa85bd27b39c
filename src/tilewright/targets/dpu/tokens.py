"""Dependence tokens: what they say, and how to make them.

Every ordered pair of classes has a queue of tokens that are all alike. An instruction whose ``put``
names another class leaves a token for it when it is done; one whose ``take`` names a class waits
for a token from it and uses it up. So the n-th take of a pair waits for the n-th put, and any
counted wait can be said: "the first n instructions of that engine have completed".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def match(operations: Sequence[Operation]) -> Matched:
    """The n-th take of each pair of classes with the n-th put."""
    waits = np.zeros((len(operations), CLASSES), np.int64)
    puts: dict[tuple[int, int], list[int]] = {}
    takes: dict[tuple[int, int], list[int]] = {}
    position = np.zeros(CLASSES, np.int64)
    completed: list[int] = []
    for operation in operations:
        own = operation.engine
        position[own] += 1
        completed.append(int(position[own]))
        for other in range(CLASSES):
            if other == own:
                continue
            if operation.fields["put"] >> other & 1:
                puts.setdefault((own, other), []).append(operation.number)
            if operation.fields["take"] >> other & 1:
                takes.setdefault((other, own), []).append(operation.number)
    starved: list[Problem] = []
    left: list[Problem] = []
    for source in range(CLASSES):
        for target in range(CLASSES):
            given = puts.get((source, target), [])
            taken = takes.get((source, target), [])
            for producer, consumer in zip(given, taken, strict=False):
                waits[consumer, source] = completed[producer]
            pair = f"from {CATEGORIES[source]} to {CATEGORIES[target]}"
            for consumer in taken[len(given) :]:
                starved.append(
                    Problem(
                        "program-deadlock",
                        f"waits for token {len(given) + 1} {pair}, and only {len(given)} are put",
                        operations[consumer].name,
                    )
                )
            for producer in given[len(taken) :]:
                left.append(
                    Problem(
                        "program-token",
                        f"puts a token {pair} that nothing takes",
                        operations[producer].name,
                    )
                )
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
