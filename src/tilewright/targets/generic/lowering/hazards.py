"""The waits between commands of different kernels.

Within a kernel the tile program says what waits for what. Between kernels the bytes decide: a
command that writes bytes waits for every earlier command of another engine that read or wrote
them, and one that reads them for those that wrote them. Weights, which nothing writes, wait for
nothing, and so the next kernel's weights load while this one computes. The order within an engine
needs no wait.

Waits are as fine as the uses: the slots of a buffer are told apart, and where a kernel loads the
tensor that the one before stored, a tile waits for the tiles that it overlaps alone. So the first
tiles of a kernel are loaded while the last ones of the kernel before are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.locations import TensorPlace
from tilewright.codegen.words import Column

NEAR = 256
"""Boxes at the end of a kernel and at the start of the next that are compared one by one."""


@dataclass(frozen=True)
class Footprint:
    """The boxes of a tensor in main memory that the executions of a move touch, in order."""

    place: TensorPlace
    start: NDArray[np.int64]
    """First index along each axis, of shape (axes, executions)."""
    size: NDArray[np.int64]


@dataclass(frozen=True)
class Use:
    """Bytes ``low`` to ``high`` of a memory that executions of one command read or write."""

    memory: str
    low: int
    high: int
    write: bool
    rows: Column | None = None
    """The executions, ascending; None for all of them."""
    footprint: Footprint | None = None
    """The part of those bytes that each execution touches, if known; then ``rows`` is None."""


@dataclass
class _Past:
    """A use by earlier kernels: commands of an engine that have completed when it is over."""

    count: int
    footprint: Footprint | None = None
    counts: Column | None = None
    """Per box of the footprint, the commands up to the one that touches it."""
    before: int = 0
    """Commands up to the last use of the same bytes that the footprint does not tell of."""


class Hazards:
    """The uses of all kernels so far."""

    def __init__(self) -> None:
        self._past: dict[str, dict[tuple[int, int, bool, int], _Past]] = {}
        """Earlier uses of each memory, by its name."""
        self._floor: dict[int, int] = {}

    def waits(self, uses: Iterable[Use], engine: int, executions: int) -> dict[int, Column]:
        """Engine -> per execution, how many of its commands must have completed before it."""
        waits = {
            other: np.full(executions, count, np.int64)
            for other, count in self._floor.items()
            if other != engine
        }
        for use in uses:
            for (low, high, write, other), past in self._past.get(use.memory, {}).items():
                if other == engine or not (write or use.write):
                    continue
                if low < use.high and use.low < high:
                    counts = waits.setdefault(other, np.zeros(executions, np.int64))
                    rows = slice(None) if use.rows is None else use.rows
                    counts[rows] = np.maximum(counts[rows], _needed(past, use))
        return waits

    def written(self, memory: str, low: int, high: int) -> bool:
        """Return True if an earlier kernel wrote any of these bytes since the host last ran."""
        return any(
            write and start < high and low < end
            for start, end, write, _ in self._past.get(memory, {})
        )

    def add(self, uses: Iterable[Use], engine: int, counts: Column) -> None:
        """Remember uses of a command.

        ``counts`` gives, per execution, the commands of its engine up to it.
        """
        for use in uses:
            mine = counts if use.rows is None else counts[use.rows]
            if not mine.size:
                continue
            past, key = (
                self._past.setdefault(use.memory, {}),
                (use.low, use.high, use.write, engine),
            )
            before = past[key].count if key in past else 0
            count = max(before, int(mine.max()))
            past[key] = _Past(count, use.footprint, mine, before)

    def settle(self, counts: dict[int, int]) -> None:
        """From here on every command waits for all before (``counts`` per engine)."""
        self._floor = dict(counts)
        self._past.clear()


def _needed(past: _Past, use: Use) -> Column | int:
    """The commands that the executions of a use wait for: a number for each, or one for all."""
    mine, theirs = use.footprint, past.footprint
    if mine is None or theirs is None or past.counts is None or mine.place != theirs.place:
        return past.count
    total = mine.start.shape[1]
    first, last = min(NEAR, total), max(theirs.start.shape[1] - NEAR, 0)
    earlier = int(past.counts[last - 1]) if last else 0
    counts = np.full(total, past.count, np.int64)
    touched = overlaps(
        (mine.start[:, :first], mine.size[:, :first]),
        (theirs.start[:, last:], theirs.size[:, last:]),
    )
    needed = np.where(touched, past.counts[last:], 0).max(axis=1, initial=0)
    counts[:first] = np.maximum(needed, max(earlier, past.before))
    return counts


def overlaps(
    boxes: Sequence[NDArray[np.int64]], others: Sequence[NDArray[np.int64]]
) -> NDArray[np.bool_]:
    """Which boxes (start and size, of shape (axes, boxes)) of two rows share an element."""
    start, size = boxes[0][:, :, None], boxes[1][:, :, None]
    other, length = others[0][:, None, :], others[1][:, None, :]
    first, end = np.maximum(start, other), np.minimum(start + size, other + length)
    return np.all(first < end, axis=0)
