"""Moves between main memory and the scratchpads: as few transfers as the box has runs."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.program.locations import TensorPlace
from tilewright.targets.cambricon.lowering.boxes import Axis, Box
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value


@dataclass(frozen=True)
class Runs:
    """A box as runs of bytes that are contiguous in both memories."""

    elements: Value
    """Of one run."""
    loops: tuple[tuple[Value, int], ...]
    """How many runs along each axis, outermost first, and the bytes between them in memory."""
    address: Value
    """Where the first begins, from the start of main memory; ``offset`` is added to it."""
    offset: int
    may_be_empty: bool = False
    """Whether some tile's box has no runs."""


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
    size = e.held(runs.elements)
    if not any(count != 1 for count, _ in runs.loops):
        e.emit(text, e.held(base), size, e.held(runs.address), runs.offset)
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
