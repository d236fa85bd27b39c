"""Searches: which groups are taken, of those that overlap.

``SEARCHES`` has them by name. ``exact`` never costs more than ``paths``, and ``paths`` never more
than ``greedy``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.network.fusion.search.cover import Cover, Group, Selection
from tilewright.network.fusion.search.exact import exact
from tilewright.network.fusion.search.greedy import greedy
from tilewright.network.fusion.search.paths import paths

SEARCHES: Mapping[str, Callable[[Cover], Selection]] = {
    "exact": exact,
    "paths": paths,
    "greedy": greedy,
}
"""Every search by its name on the command line (choices.py)."""

__all__ = ["SEARCHES", "Cover", "Group", "Selection"]
