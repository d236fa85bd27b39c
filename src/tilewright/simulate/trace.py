"""Traces: a timeline as Chrome / Perfetto trace JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.machine.model import Machine
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.timing import Timeline


def write_trace(
    path: Path,
    timeline: Timeline,
    commands: TimedArray,
    machine: Machine,
    *,
    kernels: Sequence[str] = (),
    nodes: Sequence[Sequence[str]] = (),
    label: Callable[[int], str] | None = None,
) -> None:
    """Write one event per command; ``kernels[k]`` names kernel k, ``nodes[k]`` its model nodes."""
    raise NotImplementedError
