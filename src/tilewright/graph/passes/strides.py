"""Views as addresses: the strides of a reshaped, transposed or sliced tensor, if there are any.

A tensor in memory is its layout (planning/layout.py) and one stride per physical axis. A view is
an address when strides of its own layout reach the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod

from tilewright.planning.layout import Layout


@dataclass(frozen=True)
class Box:
    """The place of a tensor: layout, logical shape, offset and physical strides, both in
    elements."""

    layout: Layout
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @property
    def dense(self) -> bool:
        """True if elements lie as in a tensor of its own (axes of extent 1 do not matter)."""
        extents = self.layout.physical_shape(self.shape)
        dense_strides = self.layout.strides(self.shape)
        return all(
            extent == 1 or mine == stride
            for extent, mine, stride in zip(extents, dense_strides, self.strides, strict=True)
        )


def parse(text: str, rank: int) -> Layout:
    """The layout of that name; one with another number of dims than ``rank`` is an error."""
    return _parse(text, rank)


@lru_cache(maxsize=256)
def _parse(text: str, rank: int) -> Layout:
    return Layout.parse(text, rank)


def dense_box(text: str, shape: tuple[int, ...]) -> Box:
    """A tensor of its own."""
    layout = parse(text, len(shape))
    return Box(layout, shape, 0, layout.strides(shape))


def size(text: str, shape: tuple[int, ...]) -> int:
    """Elements in memory, padding included."""
    return parse(text, len(shape)).size(shape)


def pads(text: str, shape: tuple[int, ...]) -> bool:
    """Return True if the layout pads a tensor of this shape."""
    return size(text, shape) != prod(shape)


def slice_box(box: Box, ranges: Sequence[range], *, scattered: bool = False) -> Box | None:
    """The part of a tensor with these indices along each axis, in the same layout.

    An axis that the layout cuts into blocks is sliced at whole blocks, or to its own end. The
    part's elements lie in runs unless ``scattered``.
    """
    offset, strides = box.offset, list(box.strides)
    for axis, taken in enumerate(ranges):
        whole = box.shape[axis]
        if taken == range(whole):
            continue
        factors = [i for i, factor in enumerate(box.layout.factors) if factor.axis == axis]
        if len(factors) == 1:
            offset += taken.start * strides[factors[0]]
            strides[factors[0]] *= taken.step
            if taken.step < 0:
                return None
            continue
        outer = max(factors, key=lambda i: box.layout.factors[i].divisor)
        block = box.layout.factors[outer].divisor
        ends = len(taken) % block == 0 or taken.stop == whole
        if taken.step != 1 or taken.start % block or not ends:
            return None
        offset += taken.start // block * strides[outer]
    shape = tuple(len(taken) for taken in ranges)
    part = Box(box.layout, shape, offset, tuple(strides))
    return part if scattered else _checked(part)


def transpose_box(box: Box, order: Sequence[int], layout: Layout) -> Box | None:
    """The tensor whose axis i is axis ``order[i]`` of this one, in the given layout."""
    known_strides = {
        (f.axis, f.divisor, f.modulus): s
        for f, s in zip(box.layout.factors, box.strides, strict=True)
    }
    strides: list[int] = []
    for factor in layout.factors:
        stride = known_strides.get((order[factor.axis], factor.divisor, factor.modulus))
        if stride is None:
            return None
        strides.append(stride)
    shape = tuple(box.shape[axis] for axis in order)
    return _checked(Box(layout, shape, box.offset, tuple(strides)))


@dataclass
class _Run:
    """Elements whose row-major index advances by ``step``: ``count`` of them, ``stride`` apart."""

    step: int
    count: int
    stride: int


def reshape_box(box: Box, shape: tuple[int, ...], layout: Layout) -> Box | None:
    """The same elements in row-major order as a tensor of another shape and layout."""
    if layout.size(shape) != prod(shape):
        # Lanes of padding have no elements to lie on.
        return None
    runs = _runs(box)
    if runs is None:
        return None
    strides: list[int] = []
    following = 1
    steps = _row_major_strides(shape)
    for factor, count in reversed(
        list(zip(layout.factors, layout.physical_shape(shape), strict=True))
    ):
        step = steps[factor.axis] * factor.divisor
        if count == 1:
            strides.append(following)
            continue
        run = next((r for r in runs if _holds(r, step, count)), None)
        if run is None:
            return None
        strides.append(run.stride * (step // run.step))
        following = strides[-1] * count
    return _checked(Box(layout, shape, box.offset, tuple(reversed(strides))))


def _holds(run: _Run, step: int, count: int) -> bool:
    return step % run.step == 0 and step * count <= run.step * run.count


def _runs(box: Box) -> list[_Run] | None:
    """The tensor as runs, joined where one continues another; None if padding lies between."""
    steps, runs = _row_major_strides(box.shape), list[_Run]()
    extents = box.layout.physical_shape(box.shape)
    for axis, extent in enumerate(box.shape):
        if extent == 1:
            continue
        parts = [
            _Run(steps[axis] * f.divisor, count, stride)
            for f, count, stride in zip(box.layout.factors, extents, box.strides, strict=True)
            if f.axis == axis and count != 1
        ]
        joined = _join(parts)
        if prod(part.count for part in joined) != extent:
            if len(joined) != 1:
                return None
            # Blocks that lie one after the other: padding is at the end only.
            joined[0].count = extent
        runs.extend(joined)
    return _join(runs)


def _join(runs: list[_Run]) -> list[_Run]:
    joined: list[_Run] = []
    for run in sorted(runs, key=lambda run: run.step):
        last = joined[-1] if joined else None
        if (
            last is not None
            and run.step == last.step * last.count
            and run.stride == last.stride * last.count
        ):
            last.count *= run.count
        else:
            joined.append(_Run(run.step, run.count, run.stride))
    return joined


def _row_major_strides(shape: Sequence[int]) -> list[int]:
    strides, step = list[int](), 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return strides[::-1]


def _checked(box: Box) -> Box | None:
    """The box, if its last axis is contiguous in memory and it is read forwards; else None."""
    extents = box.layout.physical_shape(box.shape)
    wide = [s for s, extent in zip(box.strides, extents, strict=True) if extent > 1]
    runs_forward = all(a >= b for a, b in pairwise(wide))
    return box if runs_forward and (not wide or wide[-1] == 1) else None
