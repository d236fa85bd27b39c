"""Moves between memories, and paths of several moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.machine.model import Move


def paths_from(source: str, moves: Iterable[Move]) -> dict[str, tuple[Move, ...]]:
    """Shortest sequences of moves from a memory to each that it reaches; of equally short ones, the
    first."""
    known = tuple(moves)
    reached: dict[str, tuple[Move, ...]] = {source: ()}
    for place in (queue := [source]):
        for move in known:
            if move.source == place and move.target not in reached:
                reached[move.target] = (*reached[place], move)
                queue.append(move.target)
    return reached


def move_between(moves: Iterable[Move], source: str, target: str, machine: str) -> Move:
    """The move between two memories of a machine; raises KeyError."""
    for move in moves:
        if (move.source, move.target) == (source, target):
            return move
    raise KeyError(f"{machine} has no move from {source} to {target}")
