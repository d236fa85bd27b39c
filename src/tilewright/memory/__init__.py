"""Allocation of buffers in a memory: the allocators of all memories.

A ``Problem`` has buffers with sizes and lives, an alignment and a capacity; an ``Allocation`` has
their offsets and the peak.

- heuristics.py: six greedy orders with first fit and best fit, then a local search;
- exact.py: branch and bound for the least peak, with a bounded number of nodes; its compiled search
  is in search.py;
- alignment.py: rounding of sizes and addresses.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.memory.alignment import ALIGNMENT, align_up, ceil_div, shared
    from tilewright.memory.exact import NODES, RULES, allocate_exactly, improve
    from tilewright.memory.heuristics import allocate, heuristic_peaks, place
    from tilewright.memory.problem import Allocation, Buffer, Problem, lowest_gap

_HOMES = {
    "ALIGNMENT": "alignment",
    "Allocation": "problem",
    "Buffer": "problem",
    "NODES": "exact",
    "Problem": "problem",
    "RULES": "exact",
    "align_up": "alignment",
    "allocate": "heuristics",
    "allocate_exactly": "exact",
    "ceil_div": "alignment",
    "heuristic_peaks": "heuristics",
    "improve": "exact",
    "lowest_gap": "problem",
    "place": "heuristics",
    "shared": "alignment",
}

__all__ = [
    "ALIGNMENT",
    "NODES",
    "RULES",
    "Allocation",
    "Buffer",
    "Problem",
    "align_up",
    "allocate",
    "allocate_exactly",
    "ceil_div",
    "heuristic_peaks",
    "improve",
    "lowest_gap",
    "place",
    "shared",
]


def __getattr__(name: str) -> Any:
    """Import the names of the room on first use: a run rounds sizes and allocates nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright.memory' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tilewright.memory.{_HOMES[name]}"), name)
