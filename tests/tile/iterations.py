"""One iteration of a tile program at a time: intervals of dims and boxes, as plain numbers.

``tile/iteration.py`` and ``tile/boxes.py`` have the same for every execution at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.planning.domain import Affine, Interval
from tilewright.tile.dialect import DomainOp, Scope, enclosing_loops


@dataclass(frozen=True)
class Box:
    """One box: start and size along each axis, and the tensor's shape."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(
        cls, window: Sequence[Affine], shape: Sequence[int], dims: Mapping[str, Interval]
    ) -> Box:
        """The box of a window for dims in their intervals."""
        intervals = [axis.interval(dims) for axis in window]
        return cls(
            tuple(start for start, _ in intervals),
            tuple(size for _, size in intervals),
            tuple(shape),
        )

    @property
    def clamped(self) -> tuple[Interval, ...]:
        """Start and size along each axis of the part inside the tensor."""
        result: list[Interval] = []
        for start, size, limit in zip(self.start, self.size, self.shape, strict=True):
            low = min(max(start, 0), limit)
            result.append((low, max(min(start + size, limit) - low, 0)))
        return tuple(result)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The part inside the tensor, as an index of an array of the tensor."""
        return tuple(slice(start, start + size) for start, size in self.clamped)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after along each axis."""
        result: list[tuple[int, int]] = []
        for start, size, (low, inside) in zip(self.start, self.size, self.clamped, strict=True):
            before = min(max(low - start, 0), size)
            result.append((before, size - before - inside))
        return tuple(result)

    @property
    def empty(self) -> bool:
        """True if no part of the box lies inside the tensor."""
        return any(size == 0 for _, size in self.clamped)

    def contains(self, other: Box) -> bool:
        """Return True if the part of ``other`` inside the tensor lies in this box, too."""
        return other.empty or all(
            low <= start and start + size <= low + extent
            for (low, extent), (start, size) in zip(self.clamped, other.clamped, strict=True)
        )

    def __str__(self) -> str:
        axes = (
            f"{start}:{start + size}" for start, size in zip(self.start, self.size, strict=True)
        )
        return "[" + ", ".join(axes) + "]"


def each_run(
    scope: Scope,
    dims: Mapping[str, Interval],
    ends: dict[tuple[DomainOp, str], int] | None = None,
) -> Iterator[dict[str, Interval]]:
    """The dims' intervals in each run of a loop's or a domain's body, for those around it.

    ``ends`` has the ends of sliding intervals in the run before, and is kept up to date.
    """
    ends = {} if ends is None else ends
    if isinstance(scope, DomainOp):
        bound = {dim: _cut(axis, dims, dim) for dim, axis in scope.bound.items()}
        for dim in scope.sliding_dims:
            start, size = bound[dim]
            first = min(max(start, ends.get((scope, dim), start)), start + size)
            bound[dim] = first, start + size - first
            ends[scope, dim] = start + size
        if all(size > 0 for _, size in bound.values()):
            yield {**dims, **bound}
        return
    dim, step = scope.dim.data, scope.step_size
    start, size = dims[dim]
    upper = min(scope.upper_bound, size)
    for domain, slid in list(ends):
        if scope in enclosing_loops(domain)[-1:]:
            del ends[domain, slid]
    for shift in range(scope.lower_bound, upper, step):
        yield {**dims, dim: (start + shift, min(step, upper - shift))}


def _cut(axis: Affine, dims: Mapping[str, Interval], dim: str) -> Interval:
    """The interval of an expression, cut at that of a dim."""
    (start, size), (low, extent) = axis.interval(dims), dims[dim]
    first = min(max(start, low), low + extent)
    return first, min(max(start + size, first), low + extent) - first
