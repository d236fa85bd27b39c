"""Boxes of operands with positions known at run time: where they begin, how large they are.

A buffer holds its box without gaps, in the order of the tensor's layout, with the strides of the
box itself: so a tile at the edge is as contiguous as any other. What lies in the padding is not
held; loops over windows leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value


@dataclass(frozen=True)
class Spans:
    """First index and size of every dim of a tile."""

    start: Mapping[str, Value]
    size: Mapping[str, Value]

    def of(self, dim: str) -> Value:
        """Size of a dim; 1 for a dim that the kernel lacks."""
        return self.size.get(dim, 1)


@dataclass(frozen=True)
class Axis:
    """The interval of one axis, inside the tensor."""

    low: Value
    size: Value
    before: Value
    """Indices of the box that lie before the tensor's first."""
    whole: bool
    """Whether it always spans the whole axis."""
    padded: bool
    """Whether some tile's box reaches beyond the tensor."""
    may_be_empty: bool = False
    """Whether some tile's box may lie in the padding alone."""


@dataclass(frozen=True)
class Box:
    """One box, with the strides in which a buffer holds it."""

    axes: tuple[Axis, ...]
    strides: tuple[Value, ...]
    """Bytes along each logical axis."""
    count: Value
    """Elements."""


def axis_of(
    e: Emitter, axis: Affine, extent: int, spans: Spans, extents: Mapping[str, int]
) -> Axis:
    """The interval of an affine expression, cut at the tensor's ends."""
    first: Value = axis.offset
    size: Value = 1
    settled = True
    for name, c in axis.terms:
        assert c > 0
        start = spans.start.get(name, 0)
        settled &= isinstance(start, int)
        first = e.add(first, e.multiply(start, c))
        size = e.add(size, e.multiply(e.subtract(spans.of(name), 1), c))
    low, span = axis.interval({name: (0, extents.get(name, 1)) for name in axis.dims})
    if low >= 0 and low + span <= extent:
        whole = isinstance(first, int) and isinstance(size, int) and (first, size) == (0, extent)
        return Axis(first, size, 0, whole, False)
    lengths = ((spans.of(name), c) for name, c in axis.terms)
    least = 1 + sum(c * (length - 1) for length, c in lengths if isinstance(length, int))
    may_be_empty = least <= max(-low, low + span - extent)
    if (cut := _cut_at_ends(e, axis, extent, spans, extents, size)) is not None:
        before, behind = cut
        held = e.subtract(size, e.add(before, behind))
        return Axis(e.add(first, before), held, before, False, True, may_be_empty)
    begin = e.maximum(first, 0)
    end = e.minimum(e.add(first, size), extent)
    before = e.subtract(begin, first)
    held = e.subtract(end, begin)
    whole = settled and begin == 0 and held == extent
    return Axis(begin, held, before, whole, True, may_be_empty)


def _cut_at_ends(
    e: Emitter, axis: Affine, extent: int, spans: Spans, extents: Mapping[str, int], size: Value
) -> tuple[Value, Value] | None:
    """Indices of an interval before the tensor and behind it, where it is known that only the first
    tile and the last one reach beyond it, and how far: where tiles are alike along the only dim
    that moves it, and longer than what reaches beyond."""
    moving = [term for term in axis.terms if not isinstance(spans.start.get(term[0], 0), int)]
    if len(moving) != 1 or not isinstance(size, int):
        return None
    ((name, c),) = moving
    start, step, whole = spans.start[name], spans.of(name), extents.get(name, 1)
    if not isinstance(step, int) or whole % step:
        return None
    low = axis.offset
    for other, factor in axis.terms:
        if other != name:
            at = spans.start.get(other, 0)
            assert isinstance(at, int)
            low += factor * at
    assert isinstance(start, Register)
    before, behind = max(-low, 0), max(low + c * (whole - step) + size - extent, 0)
    if max(before, behind) > c * step:
        return None
    first = e.multiply(e.equals(start, 0), before) if before else 0
    last = e.multiply(e.equals(start, whole - step), behind) if behind else 0
    return first, last


def packed(e: Emitter, axes: Sequence[Axis], order: Sequence[int], element: int) -> Box:
    """A box without gaps; ``order`` has the logical axes, outermost first."""
    strides: list[Value] = [0] * len(axes)
    step: Value = element
    count: Value = 1
    for axis in reversed(order):
        strides[axis] = step
        step = e.multiply(step, axes[axis].size)
        count = e.multiply(count, axes[axis].size)
    return Box(tuple(axes), tuple(strides), count)
