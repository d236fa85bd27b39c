"""Records of the graphs that ``torch.compile`` gave to the backend."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass

from tilewright.errors import Problem, TilewrightError

KEPT = 1000
"""Graphs that are remembered; older ones are forgotten."""

LOG = logging.getLogger("tilewright.integrations.torch")


@dataclass
class GraphRecord:
    """One graph: how often it was compiled and run, and why it is left to PyTorch if it is."""

    name: str
    operations: int
    """Calls of operations in the graph."""
    compiled: int = 0
    """Packages made for it, one for each shape and state of the parameters."""
    runs: int = 0
    """Runs of these packages."""
    problems: tuple[Problem, ...] = ()
    """Reasons why PyTorch runs the graph itself; empty if it does not."""

    def fall_back(self, error: TilewrightError) -> None:
        """Leave the graph to PyTorch from now on, and log why."""
        self.problems = error.problems
        LOG.warning("%s is left to PyTorch: %s", self.name, "; ".join(map(str, error.problems)))


_records: deque[GraphRecord] = deque(maxlen=KEPT)
_count = 0


def record(operations: int) -> GraphRecord:
    """A record for a new graph."""
    global _count
    _count += 1
    entry = GraphRecord(f"graph {_count}", operations)
    _records.append(entry)
    return entry


def graphs() -> tuple[GraphRecord, ...]:
    """All graphs that the backend was given, the latest last."""
    return tuple(_records)


def fallbacks() -> tuple[GraphRecord, ...]:
    """The graphs that PyTorch runs itself; their ``problems`` say why."""
    return tuple(item for item in _records if item.problems)


def forget() -> None:
    """Forget all records; compiled graphs stay compiled."""
    _records.clear()
