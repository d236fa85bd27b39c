"""The positions of tiles: the loops of a tile program as those of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.codegen.nest.span import Span, box
from tilewright.codegen.nest.value import Expr, Value, equal, select, variable
from tilewright.planning.domain import Affine
from tilewright.targets.ascend.machine import CUBE
from tilewright.targets.ascend.program import LENGTH, Command, Loop, Statement, scalar
from tilewright.tile.dialect import LoopOp

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
    (span,) = box((axis,), (extents[name],), spans, extents)
    if isinstance(span.start, int) and isinstance(span.size, int):
        return Span(span.start, span.size, span.size), []
    first, size = variable(f"{name}_first"), variable(f"{name}_size")
    commands = [scalar(first.text, span.start), scalar(size.text, span.end - first)]
    return Span(first, size, most), commands


def slot_of(loops: Sequence[tuple[Loop, int, LoopOp]], slots: int) -> Value | None:
    """The slot of a run of some loops' body: slots take turns, and runs are counted as the tile
    program counts them (``Order.visit``).

    None where an expression of their variables does not say it: where a loop runs less often at an
    edge, but for that of the loop around it over the same dim, after which that one ends.
    """
    total: Value = 0
    several = [each for each in loops if each[1] > 1]
    for number, (loop, _, op) in enumerate(several):
        inner = several[number + 1 :]
        same = next((other for other, _, of in inner if of.dim == op.dim), None)
        if any(isinstance(each.count, Expr) and each is not same for each, _, _ in inner):
            return None
        total = loop.variable * (prod(trips for _, trips, _ in inner) % slots) + total
    return total % slots


def first_of(loops: Sequence[Loop]) -> Value:
    """Return the condition that a product is the first one of its sums: 1 where there are no
    others."""
    if not loops:
        return 1
    total: Value = 0
    for loop in loops:
        total = loop.variable + total
    return equal(total, 0)


def last_of(loops: Sequence[Loop]) -> Value:
    """Return the condition that loops are in their last turn: 1 where there are none."""
    if not loops:
        return 1
    left: Value = 0
    for loop in loops:
        left = loop.count - 1 - loop.variable + left
    return equal(left, 0)


def when(name: str, condition: Value, body: list[Statement]) -> list[Statement]:
    """Statements under a condition."""
    return [Loop(name, select(condition, 1, 0), body)] if isinstance(condition, Expr) else body
