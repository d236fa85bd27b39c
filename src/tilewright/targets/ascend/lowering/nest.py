"""The positions of tiles: the loops of a tile program as those of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.codegen.nest.span import Span, box
from tilewright.codegen.nest.value import Value, equal, variable
from tilewright.planning.domain import Affine
from tilewright.targets.ascend.machine import CUBE
from tilewright.targets.ascend.program import LENGTH, Command, Loop, scalar

Spans = Mapping[str, Span]

NOTHING = Span(0, 1, 1)
"""The span of an axis without a dim: its one index."""


def padded_length() -> Value:
    """``LENGTH`` in whole blocks."""
    return (LENGTH + (CUBE - 1)) // CUBE * CUBE


def cut(span: Span, step: int, upper: int, name: str) -> tuple[Loop, int, Span]:
    """A loop over tiles of a span: the loop, how often it runs at most, and a tile's span."""
    loop = Loop(name, span.count(step, upper))
    inner = span.tile(step, upper, span.start + loop.variable * step)
    return loop, span.trips(step, upper), inner


def interval(
    axis: Affine, spans: Spans, extents: Mapping[str, int], most: int, name: str
) -> tuple[Span, list[Command]]:
    """The indices of the dim ``name`` that an expression takes over some spans, ``most`` at most,
    and the commands that name their ends where these change from tile to tile."""
    if axis.lone is not None:
        return spans[axis.lone], []
    (own,) = box((axis,), (extents[name],), spans, extents)
    if isinstance(own.start, int) and isinstance(own.size, int):
        return Span(own.start, own.size, own.size), []
    first, size = variable(f"{name}_first"), variable(f"{name}_size")
    commands = [scalar(first.text, own.start), scalar(size.text, own.end - first)]
    return Span(first, size, most), commands


def slot_of(loops: Sequence[tuple[Loop, int]], slots: int) -> Value:
    """The slot of a visit within some loops: slots take turns, the innermost loop's visits first.

    Where an outer loop's edge tiles have fewer visits, the turns of those that they lack are left
    out.
    """
    total: Value = 0
    for number, (loop, trips) in enumerate(loops):
        factor = prod(count for _, count in loops[number + 1 :]) % slots
        if trips > 1:
            total = loop.variable * factor + total
    return total % slots if not isinstance(total, int) else 0


def first_of(loops: Sequence[Loop]) -> Value:
    """Return the condition that a product is the first one of its sums: 1 where there are no
    others."""
    if not loops:
        return 1
    total: Value = 0
    for loop in loops:
        total = loop.variable + total
    return equal(total, 0)
