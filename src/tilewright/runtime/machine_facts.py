"""The part of a machine's description that reports read, as a package's manifest keeps it.

The whole description is checked where a machine is made of it (machine/forms.py), which reports and
runs on the processor at hand need not: it is checked when a report is made.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from msgspec import Meta, Struct

from tilewright.errors import refuse
from tilewright.system.typed_json import JsonError, from_value

Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


class MoveFacts(Struct, frozen=True):
    """Facts of a move that reports read."""

    name: str
    bytes_per_cycle: Positive
    latency: Annotated[int, Meta(ge=0)]
    in_flight: Annotated[int, Meta(ge=1)]


class PrimitiveFacts(Struct, frozen=True):
    """Facts of a primitive that reports read."""

    name: str
    operations: tuple[str, ...] = ()
    approximate: bool = False


class HostFacts(Struct, frozen=True):
    """Facts of the processor beside the accelerator that reports read."""

    name: str
    clock_hz: Positive


class MachineFacts(Struct, frozen=True):
    """Facts of a machine that reports read."""

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
        raise refuse("package-invalid", f"machine: {error}", "manifest.json") from None
