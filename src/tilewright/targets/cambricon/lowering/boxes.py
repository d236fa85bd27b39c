"""Boxes of operands with positions known at run time, and their moves from and to main memory.

A buffer holds its box without gaps, in the order of the tensor's layout, with the strides of the
box itself: so a tile at the edge is as contiguous as any other. The padding is not
stored; loops over windows leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.codegen.program.locations import TensorPlace
from tilewright.planning.domain import Affine
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
    """True if the box always spans the whole axis."""
    padded: bool
    """True if some tile's box reaches beyond the tensor."""
    may_be_empty: bool = False
    """True if some tile's box may lie in the padding alone."""


@dataclass(frozen=True)
class Box:
    """One box, with the strides in which a buffer holds it."""

    axes: tuple[Axis, ...]
    strides: tuple[Value, ...]
    """Bytes along each logical axis."""
    count: Value
    """The number of elements in the box."""


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
    begin = e.maximum(first, 0)
    end = e.minimum(e.add(first, size), extent)
    before = e.subtract(begin, first)
    length = e.subtract(end, begin)
    whole = settled and begin == 0 and length == extent
    return Axis(begin, length, before, whole, True, may_be_empty)


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


@dataclass(frozen=True)
class Runs:
    """A box as runs of bytes that are contiguous in both memories."""

    elements: Value
    """The number of elements in one run."""
    loops: tuple[tuple[Value, int], ...]
    """The number of runs along each axis, outermost first, and the bytes between them in memory."""
    address: Value
    """Bytes from the start of main memory to the first run; ``offset`` is added to it."""
    offset: int
    may_be_empty: bool = False
    """True if some tile's box has no runs."""


def runs_of(e: Emitter, box: Box, place: TensorPlace, order: tuple[int, ...]) -> Runs:
    """The longest runs of a box: axes are one where all within them is whole."""
    inner: Value = 1
    outer: list[tuple[Value, int]] = []
    address: Value = 0
    expected, gone = place.element, False
    for axis in reversed(order):
        interval: Axis = box.axes[axis]
        stride = place.strides[axis]
        if place.shape[axis] == 1:
            continue
        address = e.add(address, e.multiply(interval.low, stride))
        if not gone and stride == expected:
            inner = e.multiply(inner, interval.size)
            expected = stride * place.shape[axis]
            gone = not interval.whole
        else:
            gone = True
            outer.append((interval.size, stride))
    may_be_empty = any(interval.may_be_empty for interval in box.axes)
    return Runs(inner, tuple(reversed(outer)), address, place.address, may_be_empty)


def transfer(e: Emitter, text: str, runs: Runs, base: Value, element: int) -> None:
    """All runs of a box, to or from ``base`` in a scratchpad, where they follow one another."""
    size = e.reg(runs.elements)
    if not any(count != 1 for count, _ in runs.loops):
        e.emit(text, e.reg(base), size, e.reg(runs.address), runs.offset)
        return
    chip = e.variable(base)
    main = e.variable(runs.address)
    run_bytes = e.multiply(runs.elements, element)

    def level(number: int) -> None:
        if number == len(runs.loops):
            e.emit(text, chip, size, main, runs.offset)
            e.increase(chip, run_bytes)
            return
        count, stride = runs.loops[number]
        inner = runs.loops[number + 1 :]
        # What the loops within have added to the address is taken back.
        back: Value = 0
        for many, step in inner:
            back = e.add(back, e.multiply(many, step))
        forward = e.subtract(stride, back)

        def body() -> None:
            level(number + 1)
            e.increase(main, forward)

        e.repeat(count, body, least=0 if runs.may_be_empty else 1)

    level(0)
