"""The means by which a machine's engines wait for one another, and how many of them it has.

Tile programs say what waits for what; the last pass maps it to one of these styles
(tile/passes/assign_events.py), within the machine's limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Style = Literal["counters", "flags", "replies", "tokens", "none"]

MAX_IDS = 32
"""Flags of a pair of engines, or reply words: an instruction names several by one bit each."""

MAX_WORDS = 1 << 10
"""Reply words of an issuer, which names them by their addresses."""

MAX_DEPTH = 1 << 16

Grain = Literal["commands", "rows"]

EVENTS: tuple[Style, ...] = ("flags", "replies", "tokens")
"""The styles in which an engine signals and another waits, by something that both name."""


class Synchronisation(BaseModel):
    """The style of synchronisation and its limits. The bare name of a style stands for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    style: Style = "counters"
    """The style of synchronisation; with ``counters`` a command waits until other engines have
    completed a stated number of commands.

    ``flags``: every ordered pair of engines has flags; an engine sets one once all its commands
    before are done, the other waits for it and takes it down. ``replies``: reply words, which
    commands that complete count up, and whose values engines wait for. ``tokens``: dependence
    bits; commands put a token for another engine, and take one from it before they start; all
    tokens of an ordered pair are alike. ``none``: one command runs at a time."""
    ids: int | None = Field(default=None, ge=1, le=MAX_WORDS)
    """Flags of each ordered pair of engines; reply words of the machine."""
    depth: int | None = Field(default=None, ge=1, le=MAX_DEPTH)
    """The greatest number of signals of an id that may be ahead of its waits. None: 1 for flags,
    which are bits then, and for reply words, which are compared for equality; any number of
    tokens."""
    grain: Grain = "commands"
    """The unit of waiting. ``rows``: commands are several instructions, and of the commands that
    use a buffer each instruction waits for those that touch the same rows. Computes that hand on
    results on the chip overlap within a tile, and a kernel's instructions are issued in the order
    in which they can begin. The lowering gives the signals, as programs know commands alone."""
    stalls: bool = True
    """True if a signal is a command that its engine runs alone: the next one starts once all before
    the signal are done. Else the signal is given when they are, beside what the engine does."""

    issuer: str = ""
    """The engine that gives the others their commands, in the order of the text, and waits for
    them: a core that computes itself. "": engines have queues of their own."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {"style": value} if isinstance(value, str) else value

    @property
    def signals(self) -> bool:
        """True if engines signal one another, by ids that programs have to be given."""
        return self.style in EVENTS

    @property
    def by_rows(self) -> bool:
        """True if instructions wait for rows of buffers, not commands for commands."""
        return self.grain == "rows"

    @property
    def count(self) -> int:
        """Ids of each ordered pair of engines; of the machine where they are reply words."""
        return 1 if self.ids is None else self.ids

    @property
    def limit(self) -> int | None:
        """Signals that an id may be ahead of its waits; None: any number."""
        return 1 if self.depth is None and self.style in ("flags", "replies") else self.depth


def synchronisation_problems(
    synchronisation: Synchronisation, engines: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield what does not fit together in a machine's synchronisation: key, reason, remedy."""
    style, issuer = synchronisation.style, synchronisation.issuer
    if issuer and (style != "replies" or issuer not in engines):
        reason = "names an engine that gives commands, and waits for reply words"
        yield "synchronisation.issuer", reason, f"one of {', '.join(engines)}, with replies"
    if style in ("flags", "replies"):
        if synchronisation.ids is None:
            resource = (
                "flags of each ordered pair of engines" if style == "flags" else "reply words"
            )
            yield "synchronisation.ids", f"is needed: how many {resource} there are", "ids = 8"
    elif synchronisation.ids is not None:
        yield "synchronisation.ids", f"{style} have no ids", "leave it out"
    if not issuer and (synchronisation.ids or 0) > MAX_IDS:
        yield "synchronisation.ids", f"an instruction names at most {MAX_IDS}", f"ids = {MAX_IDS}"
    if not synchronisation.signals and synchronisation.depth is not None:
        yield "synchronisation.depth", f"{style} have no depth", "leave it out"
