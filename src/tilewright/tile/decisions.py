"""The decisions of a tile program; a target says which of them it takes over."""

from __future__ import annotations

from enum import StrEnum


class Decision(StrEnum):
    """A part of a tile program that the code of a target either follows or decides anew."""

    ADDRESSES = "addresses"
    """The address of each buffer in its memory."""
    WAITS = "waits"
    """The dependences that an operation waits for before it starts."""
    ORDER = "order"
    """The order in which the operations of a block are issued, and which loads are issued ahead."""
    SLOTS = "slots"
    """The number of tiles of a buffer that its memory holds at a time."""


EVERY_DECISION = frozenset(Decision)
