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
    constants: int
    """Numbers that keep a register throughout."""
    pressure: int
    """How far registers are saved: primitives take fewer for themselves where it is higher."""
    stores_pixels: bool = False
    """Whether the results of single pixels may be stored as they are finished."""


MOVED = ("input", "output", "residual", "weight")
"""Roles of the operands that gain most by streams."""

USES = (
    Registers((*MOVED, "bias"), 12, 0, True),
    Registers(MOVED, 12, 1, True),
    Registers((*MOVED, "bias"), 12, 0),
    Registers(MOVED, 12, 1),
    Registers(MOVED, 2, 2),
    Registers(("input", "output"), 4, 3),
    Registers(("output",), 2, 4),
    Registers((), 4, 5),
    Registers((), 0, 6),
)
"""Ways to spend registers, fastest first: a kernel takes the first that leaves it enough."""
