"""Ids of signals, as registers are given to values: for tile programs, and for targets whose loops
are their own.

A *hand-over* is one place where an engine signals and another waits. Which of some hand-overs are
needed, and whether two may have one id, a proof of the whole program says (``holds``): it is exact
where rules of interference would be guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

APART = 1 << 10
"""Ids from here on stand for those that are not given yet; no two are the same."""

T = TypeVar("T")


def needed(
    items: Sequence[T], is_back: Callable[[T], bool], holds: Callable[[Sequence[T]], bool]
) -> list[T]:
    """The hand-overs without any of which the proof does not hold.

    Those that hand slots back are tried first: what is handed on is rarely implied by another.
    """
    kept = list(items)
    for item in sorted(items, key=lambda each: not is_back(each)):
        fewer = [each for each in kept if each is not item]
        if holds(fewer):
            kept = fewer
    return kept


@dataclass(frozen=True)
class Request:
    """A hand-over that asks for ids."""

    pair: Hashable
    """The owner of the ids: an ordered pair of engines, or the machine."""
    size: int
    """The number of ids, which are used in rotation."""
    runs: int
    """The number of times that it is executed."""


@dataclass(frozen=True)
class Given:
    """Ids for all requests, or a pair that has too few of them."""

    ids: tuple[range, ...]
    tight: Hashable = None


def give_ids(
    requests: Sequence[Request], count: int, holds: Callable[[Sequence[range]], bool]
) -> Given:
    """Ids from 0 to ``count`` for each request.

    Each has its own while there are enough for its pair. Otherwise each gets the first with which
    the proof holds, the most executed first.
    """
    ids = [range(n := APART * (number + 1), n + each.size) for number, each in enumerate(requests)]
    for pair in dict.fromkeys(each.pair for each in requests):
        mine = [number for number, each in enumerate(requests) if each.pair == pair]
        if sum(requests[number].size for number in mine) <= count:
            base = 0
            for number in mine:
                ids[number] = range(base, base + requests[number].size)
                base += requests[number].size
            continue
        for number in sorted(mine, key=lambda number: -requests[number].runs):
            own, size = ids[number], requests[number].size
            for base in range(count - size + 1):
                ids[number] = range(base, base + size)
                if holds(ids):
                    break
            else:
                ids[number] = own
                return Given(tuple(ids), pair)
    return Given(tuple(ids))


__all__ = ["APART", "Given", "Request", "give_ids", "needed"]
