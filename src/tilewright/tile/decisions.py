"""What a tile program decides, of which a target says how much it takes over."""

from __future__ import annotations

from enum import StrEnum


class Decision(StrEnum):
    """A part of a tile program that the code of a target either follows or decides anew."""

    ADDRESSES = "addresses"
    """Where each buffer lies in its memory."""
    WAITS = "waits"
    """What must be done before an operation starts."""
    ORDER = "order"
    """In what order the operations of a block are issued, and which loads are issued ahead."""
    SLOTS = "slots"
    """How many tiles of a buffer its memory holds at a time."""


EVERY_DECISION = frozenset(Decision)
