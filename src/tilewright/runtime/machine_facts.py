"""The part of a machine's description that reports read, as a package's manifest keeps it.

The whole description is checked where a machine is made of it (machine/forms.py), which reports and
runs on the processor at hand need not: it is checked when a report is made.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tilewright.errors import refuse
from tilewright.system.typed_json import JsonError, Range, from_value

Positive = Annotated[float, Range(above=0, high=sys.float_info.max)]


@dataclass(frozen=True)
class MoveFacts:
    """Facts of a move that reports read."""

    other_keys: ClassVar[bool] = True
    name: str
    bytes_per_cycle: Positive
    latency: Annotated[int, Range(0)]
    in_flight: Annotated[int, Range(1)]


@dataclass(frozen=True)
class PrimitiveFacts:
    """Facts of a primitive that reports read."""

    other_keys: ClassVar[bool] = True
    name: str
    operations: tuple[str, ...] = ()
    approximate: bool = False


@dataclass(frozen=True)
class HostFacts:
    """Facts of the processor beside the accelerator that reports read."""

    other_keys: ClassVar[bool] = True
    name: str
    clock_hz: Positive


@dataclass(frozen=True)
class MachineFacts:
    """Facts of a machine that reports read."""

    other_keys: ClassVar[bool] = True
    name: str
    clock_hz: Positive
    moves: tuple[MoveFacts, ...]
    primitives: tuple[PrimitiveFacts, ...]
    host: HostFacts | None = None


def check_facts(machine: dict[str, Any]) -> None:
    """Refuse (``package-invalid``) a description that reports cannot read."""
    try:
        from_value(MachineFacts, machine)
    except JsonError as error:
        key = error.inside("machine").where
        raise refuse("package-invalid", f"{key}: {error.reason}", "manifest.json") from None
