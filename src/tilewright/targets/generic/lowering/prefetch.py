"""Loads brought to the front of a kernel, so that they run while the kernel before ends.

The load engine is a queue: after the load of an activation, which waits for the kernel before to
store it, the first tile of the weights would wait as well. What no kernel writes, and what the
first compute needs anyway, is therefore loaded first.

Before, on the load engine::

    x (waits for the store of the kernel before), weights, x, weights, ...

After::

    weights, x (waits for the store of the kernel before), x, weights, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column
from tilewright.tile.queues import Command


@dataclass
class Prefetch:
    """The executions of a kernel's commands that are issued first, and the counts that follow."""

    keys: dict[Command, Column]
    """Per command, the keys of its executions in program order."""
    engines: dict[Command, str]
    hoisted: dict[Command, NDArray[np.bool_]] = field(
        default_factory=dict[Command, NDArray[np.bool_]]
    )
    """Mask of the executions of each command that come first; other commands are left out."""
    positions: dict[Command, Column] = field(default_factory=dict[Command, Column])
    """Per command, the place of each execution in its engine's queue, from 0."""
    _reached: dict[str, Column] = field(default_factory=dict[str, Column])

    def __post_init__(self) -> None:
        self._move_to_front()
        for engine in dict.fromkeys(self.engines.values()):
            self._count(engine)

    def _move_to_front(self) -> None:
        """New keys: those that come first from 0 on, in their order, then the others."""
        first = [keys[self.hoisted[op]] for op, keys in self.keys.items() if op in self.hoisted]
        ranks = np.sort(np.concatenate(first)) if first else np.zeros(0, np.int64)
        self._old = dict(self.keys)
        if ranks.size:
            for op, keys in self._old.items():
                chosen = self.hoisted.get(op, np.zeros(keys.size, np.bool_))
                place = np.searchsorted(ranks, keys)
                self.keys[op] = np.where(chosen, place, keys + ranks.size)

    def _count(self, engine: str) -> None:
        """Places in one engine's queue, and how far its old counts reach in the new order."""
        mine = [op for op, name in self.engines.items() if name == engine]
        old = np.concatenate([self._old[op] for op in mine])
        new = np.concatenate([self.keys[op] for op in mine])
        place = np.argsort(np.argsort(new, kind="stable"), kind="stable")
        starts = np.cumsum([0, *(self.keys[op].size for op in mine)])
        for number, op in enumerate(mine):
            self.positions[op] = place[starts[number] : starts[number + 1]]
        # The first n commands have completed when the last of them in the new order has.
        by_age = place[np.argsort(old, kind="stable")]
        self._reached[engine] = np.concatenate(
            [np.zeros(1, np.int64), np.maximum.accumulate(by_age) + 1]
        )

    def waits(self, local: Mapping[str, Column]) -> dict[str, Column]:
        """Counts of the tile program's order as counts of the new one."""
        return {
            engine: self._reached[engine][counts] if engine in self._reached else counts
            for engine, counts in local.items()
        }
