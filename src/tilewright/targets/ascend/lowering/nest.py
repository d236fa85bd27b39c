"""The positions of tiles: the loops of a tile program as values of the C that it becomes.

A dim's interval within some loops is a ``Span``: its start is a sum of loop variables, kept as such
so that the distance between the tile of an inner memory and that of an outer one is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.planning.domain import Affine
from tilewright.targets.ascend.machine import CUBE
from tilewright.targets.ascend.program import (
    LENGTH,
    Command,
    Loop,
    Value,
    equal,
    greatest,
    least,
    scalar,
    variable,
)


@dataclass(frozen=True)
class Named:
    """A value that the kernel has a name for (``program.scalar``)."""

    name: str

    @property
    def variable(self) -> Value:
        """The value, by its name."""
        return variable(self.name)


@dataclass(frozen=True)
class Linear:
    """A sum of loops' variables and named values, each times a number, and a constant."""

    terms: tuple[tuple[Loop | Named, int], ...] = ()
    constant: int = 0

    def plus(self, loop: Loop, step: int) -> Linear:
        """With so many times a loop's variable."""
        return Linear((*self.terms, (loop, step)), self.constant)

    def less(self, other: Linear) -> Linear:
        """The distance from another."""
        rest = tuple(term for term in self.terms if term not in other.terms)
        taken = tuple((loop, -step) for loop, step in other.terms if (loop, step) not in self.terms)
        return Linear((*rest, *taken), self.constant - other.constant)

    def times(self, factor: int, constant: int = 0) -> Linear:
        """Return it times a factor, plus a constant."""
        terms = tuple((loop, step * factor) for loop, step in self.terms)
        return Linear(terms, self.constant * factor + constant)

    def over(self, divisor: int) -> Linear:
        """A part of it, where all numbers have that divisor."""
        assert all(step % divisor == 0 for _, step in self.terms)
        assert self.constant % divisor == 0
        terms = tuple((loop, step // divisor) for loop, step in self.terms)
        return Linear(terms, self.constant // divisor)

    @property
    def value(self) -> Value:
        """The value as an expression in C."""
        total: Value = 0
        for loop, step in self.terms:
            total = loop.variable * step + total
        return total + self.constant


@dataclass(frozen=True)
class Span:
    """An interval of a dim."""

    start: Linear
    size: Value
    most: int
    """The largest size that it has."""


Spans = Mapping[str, Span]

NOTHING = Span(Linear(), 1, 1)
"""The span of an axis without a dim: its one index."""


def whole(extents: Mapping[str, int]) -> dict[str, Span]:
    """The spans outside of all loops."""
    return {dim: Span(Linear(), extent, extent) for dim, extent in extents.items()}


def padded_length() -> Value:
    """``LENGTH`` in whole blocks."""
    return (LENGTH + (CUBE - 1)) // CUBE * CUBE


def cut(span: Span, step: int, upper: int, name: str) -> tuple[Loop, int, Span]:
    """A loop over tiles of a span: the loop, how often it runs at most, and a tile's span."""
    most = min(span.most, upper)
    trips = -(-most // step)
    if isinstance(span.size, int):
        loop = Loop(name, trips)
    else:
        loop = Loop(name, (span.size + (step - 1)) // step)
    size: Value = min(step, most)
    if not isinstance(span.size, int) or span.size % step:
        size = least(step, span.size - loop.variable * step) if trips > 1 else span.size
    return loop, trips, Span(span.start.plus(loop, step), size, min(step, most))


def interval(
    axis: Affine, spans: Spans, extent: int, most: int, name: str
) -> tuple[Span, list[Command]]:
    """The indices within ``[0, extent)`` that an expression takes over some spans, ``most`` at
    most, and the commands that name their ends where these change from tile to tile."""
    if axis.lone is not None:
        return spans[axis.lone], []
    start, size = Linear((), axis.offset), 1
    for dim, step in axis.terms:
        own, moved = spans[dim], spans[dim].start.times(step)
        start = Linear((*start.terms, *moved.terms), start.constant + moved.constant)
        size = (own.size - 1) * step + size
    first, end = greatest(start.value, 0), least(start.value + size, extent)
    if isinstance(first, int) and isinstance(end, int):
        return Span(Linear((), first), end - first, end - first), []
    begin, count = Named(f"{name}_first"), Named(f"{name}_size")
    commands = [scalar(begin.name, first), scalar(count.name, end - begin.variable)]
    return Span(Linear(((begin, 1),)), count.variable, most), commands


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
