"""DLIR's allocation of on-chip memories, as a tile pass."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.papers.dlir.passes.free_list import place_as_they_come
from tilewright.memory import Problem
from tilewright.tile.passes import Allocate


@dataclass(frozen=True)
class BestFit(Allocate):
    """Allocates and releases buffers in the order of the text, by best fit (section 5.2.5.1).

    In all else it is ``allocate``: what does not fit this way is packed as there.
    """

    name = "allocate-best-fit"

    def offsets(self, problem: Problem) -> list[int]:
        """Where DLIR's manager puts the buffers."""
        return place_as_they_come(problem)
