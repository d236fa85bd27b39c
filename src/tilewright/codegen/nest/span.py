"""Intervals along dims and along axes: where a tile begins, and how far it reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.codegen.nest.value import Value, greatest, least
from tilewright.memory.alignment import ceil_div
from tilewright.planning.domain import Affine


@dataclass(frozen=True)
class Span:
    """An interval of a dim, or of an axis of a tensor."""

    start: Value
    size: Value
    most: int
    """The largest size that it has."""
    clipped: bool = False
    """True if it is cut where the tensor ends, which can leave nothing of it."""

    @property
    def end(self) -> Value:
        """The index after its last one."""
        return self.start + self.size

    def trips(self, step: int, upper: int) -> int:
        """Return the most trips of a loop over the span by ``step`` indices, up to ``upper``."""
        return ceil_div(min(self.most, upper), step)

    def count(self, step: int, upper: int) -> Value:
        """Return the trips of that loop, as a C expression if the size varies."""
        if isinstance(self.size, int):
            return self.trips(step, upper)
        return (self.size + (step - 1)) // step

    def tile(self, step: int, upper: int, at: Value) -> Span:
        """The span of the loop's iteration that begins at ``at``: smaller at the edge."""
        most, size = min(self.most, upper), self.size
        if isinstance(size, int) and min(size, upper) % step == 0:
            return Span(at, step, step)
        if most <= step:
            return Span(at, min(size, upper) if isinstance(size, int) else size, most)
        end = self.start + min(size, upper) if isinstance(size, int) else self.end
        return Span(at, least(step, end - at), step)


def whole(extents: Mapping[str, int]) -> dict[str, Span]:
    """The spans of dims outside of all loops."""
    return {dim: Span(0, extent, extent) for dim, extent in extents.items()}


def box(
    window: Sequence[Affine],
    shape: Sequence[int],
    spans: Mapping[str, Span],
    extents: Mapping[str, int],
) -> list[Span]:
    """Return the span that a window reads along each axis of a tensor, for spans of dims out of
    ``extents``."""
    return [_axis(affine, size, spans, extents) for affine, size in zip(window, shape, strict=True)]


def _axis(
    affine: Affine, shape: int, spans: Mapping[str, Span], extents: Mapping[str, int]
) -> Span:
    low, count = affine.interval({dim: (0, extents[dim]) for dim in affine.dims})
    _, most = affine.interval({dim: (0, spans[dim].most) for dim in affine.dims})
    start: Value = affine.offset
    end: Value = affine.offset + 1
    for dim, factor in affine.terms:
        span = spans[dim]
        first, last = span.start * factor, (span.end - 1) * factor
        start += first if factor > 0 else last
        end += last if factor > 0 else first
    start = greatest(start, 0) if low < 0 else start
    end = least(end, shape) if low + count > shape else end
    size = end - start
    cut = low < 0 or low + count > shape
    return Span(start, size, min(most, shape), cut and not isinstance(size, int))
