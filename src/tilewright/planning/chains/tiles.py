"""The data that a chain's tile reads and writes: intervals of dims and boxes of buffers per tile.

Where a producer's dims follow from the last kernel's (links.py), every box of every operand is a
product of intervals, each of which changes with one loop at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.errors import refuse
from tilewright.planning.chains.links import renamed_axes
from tilewright.planning.chains.units import Places, Unit
from tilewright.planning.domain import Affine, Operand
from tilewright.planning.space.footprint import Counts, Ints, picked, tile_positions


class Slide(NamedTuple):
    """A producer's result whose rows are kept."""

    name: str
    loop: str
    """Along which they slide."""
    ahead: int
    """Rows that each tile computes beyond those that it reads."""


Kept = tuple[Slide, ...]
"""The producers' results whose rows are kept."""


@dataclass(frozen=True)
class Span:
    """An interval in each iteration of a loop; of no loop (""), one interval."""

    loop: str
    start: Ints
    size: Ints

    def cut(self, extent: int) -> Span:
        """The part within ``[0, extent)``."""
        first = np.minimum(np.maximum(self.start, 0), extent)
        end = np.minimum(np.maximum(self.start + self.size, first), extent)
        return Span(self.loop, first, end - first)

    def further(self, rows: int) -> Span:
        """The span with ``rows`` more indices at its end; an empty span remains empty."""
        return Span(self.loop, self.start, self.size + rows * (self.size > 0))

    @property
    def new(self) -> Span:
        """The part that no iteration before has."""
        end = self.start + self.size
        first = np.append(self.start[:1], np.clip(end[:-1], self.start[1:], end[1:]))
        return Span(self.loop, first, end - first)

    @property
    def overlaps(self) -> bool:
        """True if iterations have parts in common."""
        return bool(self.new.size.sum() < self.size.sum())


@dataclass
class Rows:
    """The executions of a kernel's loops up to some depth, in their order."""

    tile: Ints
    """The outer tile in which each lies."""
    start: dict[str, Counts]
    """By the kernel's dims, the intervals; one number where no loop cuts the dim, which spares most
    of what is computed of them."""
    size: dict[str, Counts]
    parent: Ints | None = None
    """For each tile, the execution of the loops around it."""

    @classmethod
    def of(cls, tile: Ints, start: dict[str, Counts], size: dict[str, Counts]) -> Rows:
        """The executions of no loop in those outer tiles in which the domain is not empty."""
        runs = np.ones(len(tile), np.bool_)
        for column in size.values():
            runs &= column > 0
        if runs.all():
            return cls(tile, start, size)
        rows = np.flatnonzero(runs)
        start, size = ({d: picked(c, rows) for d, c in dims.items()} for dims in (start, size))
        return cls(tile[rows], start, size)

    def cut(self, dim: str, step: int) -> Rows:
        """One row for each iteration of a loop over a dim."""
        trips = np.broadcast_to(-(-self.size[dim] // step), self.tile.shape)
        ends = np.cumsum(trips)
        parent = np.repeat(np.arange(len(trips)), trips)
        shift = (np.arange(len(parent)) - (ends - trips)[parent]) * step
        start = {name: picked(column, parent) for name, column in self.start.items()}
        size = {name: picked(column, parent) for name, column in self.size.items()}
        start[dim] = start[dim] + shift
        size[dim] = np.minimum(step, size[dim] - shift)
        return Rows(self.tile[parent], start, size, parent)


@dataclass
class Tile:
    """Tile sizes of the last kernel's dims, and what all orders of its loops have in common."""

    places: Places
    sizes: Mapping[str, int]
    _spans: dict[Kept, dict[str, Span]] = field(default_factory=dict[Kept, "dict[str, Span]"])
    _boxes: dict[tuple[Kept, Slide | None, int, str, bool], list[Span]] = field(
        default_factory=dict[tuple[Kept, "Slide | None", int, str, bool], "list[Span]"]
    )
    totals: dict[object, int] = field(default_factory=dict[object, int])
    """Sums over all tiles, of those who keep them here."""
    moved: dict[object, Ints] = field(default_factory=dict[object, Ints])
    """Bytes of each transfer of a buffer, of those who keep them here."""
    busy: dict[object, dict[str, float]] = field(default_factory=dict[object, "dict[str, float]"])
    """Cycles of each engine, of those who keep them here."""
    homes: dict[object, dict[str, int]] = field(default_factory=dict[object, "dict[str, int]"])
    """Bytes through main memories, of those who keep them here."""

    @property
    def units(self) -> tuple[Unit, ...]:
        """The kernels of the chain, as units."""
        return self.places.units

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents of the chain's dims."""
        extents: dict[str, int] = {}
        for unit in self.units:
            for dim, extent in unit.kernel.anchor.extents.items():
                extents.setdefault(unit.names.get(dim, dim), extent)
        return extents

    @cached_property
    def cut(self) -> tuple[str, ...]:
        """The dims that have a loop."""
        extents = self.units[-1].kernel.anchor.extents
        return tuple(dim for dim, size in self.sizes.items() if size < extents[dim])

    def trips(self, dim: str) -> int:
        """Iterations of a dim's loop."""
        return -(-self.extents[dim] // self.sizes[dim])

    def spans(self, kept: Kept = ()) -> dict[str, Span]:
        """The intervals of all dims; refuses those that change with two loops."""
        if kept not in self._spans:
            origin = np.zeros(1, np.int64)
            spans = {d: Span("", origin, np.full(1, n, np.int64)) for d, n in self.extents.items()}
            for dim in self.cut:
                spans[dim] = Span(dim, *tile_positions(self.extents[dim], self.sizes[dim]))
            slides = {slide.name: slide for slide in kept}
            for unit in reversed(self.units):
                slide = slides.get(unit.kernel.output.name)
                for dim, axis in unit.bound.items():
                    span = self._span(axis, spans)
                    if slide is not None and span.loop == slide.loop:
                        spans[dim] = span.further(slide.ahead).cut(self.extents[dim]).new
                    else:
                        spans[dim] = span.cut(self.extents[dim])
            self._spans[kept] = spans
        return self._spans[kept]

    def _span(self, axis: Affine, spans: Mapping[str, Span]) -> Span:
        """The interval of an expression."""
        if (dim := axis.lone) is not None:
            return spans[dim]
        terms = [(name, c) for name, c in axis.terms if c]
        loops = dict.fromkeys(spans[name].loop for name, _ in terms if spans[name].loop)
        if len(loops) > 1:
            raise refuse("kernel-chain", f"{axis} changes with {' and '.join(loops)}")
        start: Ints = np.full(1, axis.offset, np.int64)
        size: Ints = np.ones(1, np.int64)
        full: Ints = np.ones(1, np.int64)
        for name, c in terms:
            span = spans[name]
            reach = c * (span.size - 1)
            start = start + c * span.start + np.minimum(reach, 0)
            size = size + abs(reach)
            full = full * (span.size > 0)  # Of an empty domain nothing is read.
        return Span(next(iter(loops), ""), start, size * full)

    def felt(self, number: int, kept: Kept) -> Kept:
        """``kept``, if the kept rows change the tiles of this kernel or of a later one; else ()."""
        names = [unit.kernel.output.name for unit in self.units[number:]]
        return kept if any(slide.name in names for slide in kept) else ()

    def boxes(self, number: int, operand: Operand, kept: Kept = ()) -> list[Span]:
        """Return the part of an operand's box inside its tensor, per axis, in a kernel."""
        kept_slide = next((slide for slide in kept if slide.name == operand.name), None)
        kept = self.felt(number, kept)
        key = kept, kept_slide, number, operand.name, operand.image is not None
        if key not in self._boxes:
            spans, boxes = self.spans(kept), list[Span]()
            unit = self.units[number]
            access = (
                renamed_axes(operand.access, unit.names)
                if operand.image is not None
                else unit.axes[operand.name]
            )
            for axis, extent in zip(access, operand.shape, strict=True):
                span, dim = self._span(axis, spans), axis.lone
                if kept_slide is not None and span.loop == kept_slide.loop:
                    span = span.further(kept_slide.ahead)
                elif dim is not None and self.extents[dim] == extent:
                    boxes.append(span)  # All of a dim lies inside.
                    continue
                boxes.append(span.cut(extent))
            self._boxes[key] = boxes
        return self._boxes[key]

    def takes(self, unit: Unit, inner: Mapping[str, int]) -> bool:
        """Return True if tiles of a kernel, cut to ``inner`` sizes, keep to its primitive's limits,
        and to dims that stay whole."""
        spans = self.spans()
        for dim, extent in unit.kernel.anchor.extents.items():
            sizes = spans[unit.names.get(dim, dim)].size
            most = int(sizes.max())
            if min(most, inner.get(dim, most)) > unit.primitive.limits.get(dim, extent):
                return False
            if dim in unit.primitive.whole and int(sizes.min()) < extent:
                return False
        return True


def loops_of(spans: Iterable[Span]) -> set[str]:
    """The loops with which intervals change."""
    return {span.loop for span in spans if span.loop}
