"""The sizes of memories for which a search asks the same questions with the same answers.

A search for tilings sees a memory's size through one question alone: do some bytes more fit into
what is left? Its plan is the plan for all sizes for which no answer changes. A plan that takes u
bytes of a memory of M is so the plan for every m from u to M, where nothing else that was asked for
fits into one and not the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass
class Rooms:
    """By memory, how many bytes less or more it may have."""

    low: dict[str, float] = field(default_factory=dict[str, float])
    """From this many bytes on (0 or below) all that has fitted fits."""
    high: dict[str, float] = field(default_factory=dict[str, float])
    """Below this many bytes (above 0) nothing else does."""
    compared: bool = False
    """True if memories were compared with one another."""

    def fits(self, memory: str, left: float, size: float) -> bool:
        """Return True if some bytes fit into what is left of a memory."""
        more = size - left
        if more <= 0:
            self.low[memory] = max(self.low.get(memory, -inf), more)
            return True
        self.high[memory] = min(self.high.get(memory, inf), more)
        return False

    def hold(self, more: Mapping[str, float]) -> bool:
        """Return True if all answers are the same where memories have some bytes more, or less."""
        if self.compared:
            return not any(more.values())
        return all(
            self.low.get(name, -inf) <= change < self.high.get(name, inf)
            for name, change in more.items()
        )
