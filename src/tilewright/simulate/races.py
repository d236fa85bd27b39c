"""Races: accesses that no wait and no engine's order puts one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.machine.model import Machine
from tilewright.simulate.commands import AccessArray, TimedArray


@dataclass(frozen=True, order=True)
class Race:
    """Two commands of different engines touch a byte, one writes it, and nothing orders them."""

    first: int
    second: int
    memory: str
    address: int
    """Lowest byte that both touch."""


@dataclass(frozen=True, order=True)
class UnwrittenRead:
    """A command reads an on-chip byte that no command before it has written."""

    command: int
    memory: str
    address: int


@dataclass(frozen=True)
class RaceReport:
    """What was found, at most ``limit`` of each kind; ``complete`` says that this is all."""

    races: tuple[Race, ...]
    unwritten: tuple[UnwrittenRead, ...]
    complete: bool


def find_races(
    commands: TimedArray,
    accesses: AccessArray,
    machine: Machine,
    *,
    granule: int = 32,
    limit: int = 100,
) -> RaceReport:
    """Check a program's synchronisation; see the module's text."""
    raise NotImplementedError
