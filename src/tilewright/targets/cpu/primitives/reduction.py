"""The reduction of a product: loops over input channels and taps around one row of multiply-adds.

Loops are data first: each has a count and a step through the input and through the weights. Two
that step as one through both are joined, so a kernel that covers its whole image runs as the
matrix product that it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus, total
from tilewright.targets.cpu.primitives.steps import (
    Loop,
    Tap,
    Tile,
    all_alike,
    joined,
    pointer_loops,
    write_step,
)
from tilewright.targets.cpu.primitives.widened import write_widened
from tilewright.targets.cpu.primitives.windows import Columns, axis_of

UNROLLED_TAPS = 8
"""Taps of a row that are written out when the loop within them would be short."""


@dataclass(frozen=True)
class Channels:
    """The loops over input channels: ``count`` equal steps, or blocks of steps, and a rest."""

    loop: Loop | None
    """All channels as one loop; None if they lie in blocks."""
    block: Loop | None = None
    within: Loop | None = None
    """The loop over one block's channels."""
    rest: Loop | None = None
    """The channels that do not fill a block, or a word: from where ``block`` or ``loop`` ends."""
    part: int = 0
    """Elements of the rest's one word; 0 if all can be read."""


def write_reduction(
    writer: Writer, tile: Tile, x: Address, w: Address, columns: Columns, rows: str
) -> None:
    """Write all loops of the reduction; ``rows`` is the C count of rows inside the image."""
    instance = tile.instance
    depth = instance.size("ci")
    window, across, taps = window_of(tile, x, w, columns, rows)
    word = tile.word
    if word is not None:
        nest = _words(tile, x, w, depth, word.elements)
    else:
        nest = _elements(tile, x, w, depth)
    if nest.loop is not None and nest.loop.count:
        outside = word is None or not word.widened
        if outside and nest.loop.w > across.w > 0:
            write_loops(writer, tile, w, [nest.loop, window], taps, across, [], ("x", "w"))
        else:
            write_loops(writer, tile, w, [window], taps, across, [nest.loop], ("x", "w"))
    if nest.block is not None and nest.within is not None and nest.block.count:
        outer, within = nest.block, nest.within
        write_loops(writer, tile, w, [outer, window], taps, across, [within], ("x", "w"))
    before = nest.loop or nest.block
    if nest.rest is None or before is None:
        return
    with writer.block():
        assert isinstance(before.count, int)
        writer.line(f"const {x.c_type} *xr = {plus('x', total([], before.count * before.x))};")
        writer.line(f"const {w.c_type} *wr = {plus('w', total([], before.count * before.w))};")
        rest = [nest.rest]
        write_loops(writer, tile, w, [window], taps, across, rest, ("xr", "wr"), nest.part)


def _elements(tile: Tile, x: Address, w: Address, depth: int) -> Channels:
    """One channel a step."""
    instance, lanes = tile.instance, tile.instance.lanes
    strides = [t.stride("ci", depth, instance.dims) for t in (x, w)]
    if strides[0] is not None and strides[1] is not None:
        return Channels(Loop("i", depth, strides[0], strides[1]))
    blocks, rest = divmod(depth, lanes)
    steps = [t.block_stride("ci", lanes, depth, instance.dims) for t in (x, w)]
    if steps[0] is None or steps[1] is None:
        raise instance.cannot("input channels do not lie in blocks of the vector's lanes")
    inner = [t.stride("ci", lanes, instance.dims) or 0 for t in (x, w)]
    return Channels(
        None,
        Loop("c", blocks, steps[0], steps[1]),
        Loop("i", lanes, inner[0], inner[1]),
        Loop("i", rest, inner[0], inner[1]) if rest else None,
    )


def _words(tile: Tile, x: Address, w: Address, depth: int, size: int) -> Channels:
    """``size`` channels a step: side by side in the image, and in the weights' innermost block.

    Weights are padded with zeros, so that a last word may hold anything beyond the channels; only
    where the image is not padded itself it must not be read there.
    """
    instance, lanes = tile.instance, tile.instance.lanes
    if x.stride("ci", min(depth, size), instance.dims) not in (0, 1):
        raise instance.cannot("the channels of a word do not lie side by side")
    word, block = (stride_between(w, "ci", count) for count in (size, lanes))
    full, rest = divmod(depth, size)
    if x.stride("ci", depth, instance.dims) is not None:
        if rest and x.padded("ci", size):
            full, rest = full + 1, 0
        last = Loop("i", 1, 0, 0) if rest else None
        return Channels(Loop("i", full, size, word), rest=last, part=rest)
    step = x.block_stride("ci", lanes, depth, instance.dims)
    if step is None:
        raise instance.cannot("input channels do not lie in blocks of the vector's lanes")
    blocks, rest = divmod(depth, lanes)
    return Channels(
        None,
        Loop("c", blocks, step, block),
        Loop("i", lanes // size, size, word),
        Loop("i", -(-rest // size), size, word) if rest else None,
    )


def stride_between(w: Address, dim: str, size: int) -> int:
    """Elements between blocks of ``size`` indices of a dim; 0 where there is one block."""
    for window, factors in zip(w.window, w.axes, strict=True):
        if dim not in window.dims:
            continue
        for factor, stride in factors:
            if factor.divisor == size:
                return stride
        inner = max((f for f in factors if f[0].divisor < size), key=lambda f: f[0].divisor)
        return inner[1] * (size // inner[0].divisor) if not inner[0].modulus else 0
    return 0


def window_of(
    tile: Tile, x: Address, w: Address, columns: Columns, rows: str
) -> tuple[Loop, Loop, list[Tap]]:
    """The loops over the window's rows and columns, and the taps of a row that are inside for any
    column."""
    step = tile.instance.step
    count: int | str = int(rows) if rows.isdigit() else rows
    window = Loop("k", count, step(x, "kh", 2), step(w, "kh", 2))
    across = Loop("m", len(columns.spans), step(x, "kw", 2), step(w, "kw", 2))
    axis = axis_of(tile.instance, x, "kw")
    taps: list[Tap] = []
    for number, (low, high) in enumerate(columns.spans):
        shift = 0
        if axis is not None:
            # Input column of the span's first element, from the class's origin.
            shift = low * axis.stride + number * axis.dilation - columns.origin
            shift *= across.x // axis.dilation
        if low < high:
            taps.append(Tap(low, high, shift, number * across.w))
    return window, across, taps


def write_loops(
    writer: Writer,
    tile: Tile,
    w: Address,
    before: list[Loop],
    taps: list[Tap],
    across: Loop,
    after: list[Loop],
    pointers: tuple[str, str],
    part: int = 0,
    skip: int = 0,
) -> None:
    """Loops ``before``, then the taps (as a loop where they are alike), then loops ``after``.

    ``part`` elements of one word are taken, after ``skip`` that are zero; 0 takes whole words.
    """
    if tile.word is not None and tile.word.widened:
        write_widened(writer, tile, w, before, taps, across, after[0], pointers, part, skip)
        return
    alike = all_alike(tile, taps, across)
    short = not after or after[-1].count in range(UNROLLED_TAPS)
    if alike and not (short and len(taps) <= UNROLLED_TAPS):
        loops = joined([*before, across, *after])
        before, after = loops[:-1], loops[-1:]
        taps = [Tap(0, tile.columns, 0, 0)]
    else:
        before, after = joined(before), joined(after)
    with pointer_loops(writer, tile.instance.tensor(0), w, before, pointers) as places:
        for number, tap in enumerate(taps):
            if number and not after:
                writer.line(f"FORGET({places[0]});")
            with writer.block(" ".join(loop.head for loop in after)):
                write_step(writer, tile, w, tap, after, places, part, skip)
