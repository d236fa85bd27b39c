"""The use of the machine's scalar registers: which parts of a kernel's code keep how many.

The lowering takes as many registers as it likes; tidying says how many are alive together
(tidy.py). Where those are more than the machine has, the kernel is lowered with the next use.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Registers:
    """One way to spend the machine's scalar registers on a kernel."""

    streams: tuple[str, ...]
    """Roles of the operands that move in streams."""
    addresses: int
    """How many addresses of pooled columns and results registers may hold."""


MOVED = ("input", "output", "residual", "weight")
"""Roles of the operands that gain most by streams."""

USES = (
    Registers((*MOVED, "bias"), 45),
    Registers(MOVED, 27),
    Registers(("output",), 0),
    Registers((), 0),
)
"""Ways to spend registers, fastest first: a kernel takes the first that leaves it enough."""
