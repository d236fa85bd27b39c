"""What kernels owe one another: waits between commands of different kernels.

Within a kernel the tile program says what waits for what. Between kernels the bytes decide: a
command that writes bytes waits for every earlier command of another engine that read or wrote
them, and one that reads them for those that wrote them. Weights, which nothing writes, wait for
nothing, and so the next kernel's weights load while this one computes. The order within an engine
needs no wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """Bytes ``low`` to ``high`` of a memory that commands of one engine read or write."""

    memory: str
    low: int
    high: int
    write: bool


class Hazards:
    """The uses of all kernels so far."""

    def __init__(self) -> None:
        self._past: dict[tuple[str, int, int, bool, int], int] = {}
        self._floor: dict[int, int] = {}

    def waits(self, uses: Iterable[Use], engine: int) -> dict[int, int]:
        """Engine -> how many of its commands must have completed before commands so used."""
        found = {other: count for other, count in self._floor.items() if other != engine}
        for use in uses:
            for (memory, low, high, write, other), count in self._past.items():
                if other == engine or memory != use.memory or not (write or use.write):
                    continue
                if low < use.high and use.low < high and count > found.get(other, 0):
                    found[other] = count
        return found

    def add(self, uses: Iterable[Use], engine: int, count: int) -> None:
        """Remember uses of an engine's commands, of which ``count`` are then all before."""
        for use in uses:
            key = (use.memory, use.low, use.high, use.write, engine)
            self._past[key] = max(count, self._past.get(key, 0))

    def settle(self, counts: dict[int, int]) -> None:
        """From here on every command waits for all before (``counts`` per engine)."""
        self._floor = dict(counts)
        self._past.clear()
