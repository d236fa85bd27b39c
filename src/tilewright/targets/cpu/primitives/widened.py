"""The reduction of bytes in pairs of 16-bit numbers, for processors without dot products of bytes.

What multiplies pairs of 16-bit numbers and adds them up takes as many steps as widening both of its
operands would. So the image's bytes are widened once for the taps and output channels that read
them: what the register tile's points need of one row of the window, or of some channels of a
matrix's rows, goes to an array that the first cache holds, and its pairs are broadcast from there.
Weights widen as they are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
from tilewright.targets.cpu.primitives.windows import axis_of

MOST_STEPS = 8
"""Pairs of channels that are widened at once where they lie side by side."""

WIDE = "wide"
"""C's name of the array."""

ALIGNED = 32
"""Bytes to which the array is aligned: of the widest store into it."""


def write_widened(
    writer: Writer,
    tile: Tile,
    w: Address,
    before: Sequence[Loop],
    taps: Sequence[Tap],
    across: Loop,
    pairs: Loop,
    pointers: tuple[str, str],
    part: int = 0,
    skip: int = 0,
) -> None:
    """Loops ``before``; in them bytes are widened, and taps and ``pairs`` of channels read these.

    ``part`` elements of one pair are taken, after ``skip`` that are zero; 0 takes whole pairs.
    """
    assert isinstance(pairs.count, int)
    full, rest = divmod(pairs.count, MOST_STEPS)
    if pairs.count > MOST_STEPS:
        x = tile.instance.tensor(0)
        many = Loop("h", full, MOST_STEPS * pairs.x, MOST_STEPS * pairs.w)
        some = replace(pairs, count=MOST_STEPS)
        write_widened(writer, tile, w, [*before, many], taps, across, some, pointers)
        if rest:
            with writer.block():
                writer.line(f"const {x.c_type} *xh = {plus(pointers[0], str(full * many.x))};")
                writer.line(f"const {w.c_type} *wh = {plus(pointers[1], str(full * many.w))};")
                left = replace(pairs, count=rest)
                write_widened(writer, tile, w, before, taps, across, left, ("xh", "wh"))
        return
    run = part or pairs.count * max(pairs.x, 1)
    with pointer_loops(writer, tile.instance.tensor(0), w, joined(before), pointers) as (xp, wp):
        origin, steps = _widen(writer, tile, taps, run, xp)
        inner = joined([pairs])
        if all_alike(tile, taps, across) and len(taps) > 1:
            inner = [across, *inner]
            taps = taps[:1]
        for tap in taps:
            moved = replace(tap, x=tap.x - origin)
            with writer.block(" ".join(loop.head for loop in inner)):
                write_step(writer, tile, w, moved, inner, (WIDE, wp), part, skip, steps)


def _widen(
    writer: Writer, tile: Tile, taps: Sequence[Tap], run: int, pointer: str
) -> tuple[int, tuple[int, int]]:
    """Widen ``run`` elements of every point and tap into the array ``WIDE``.

    Of windows whole rows come over, from the first tap's first column to the last one's last; else
    points lie apart, and each brings its own. Returns the element that it begins with, and the
    elements of it from one point to the next, along rows and columns.
    """
    down, along = tile.point_steps
    rows = [("q", down)] if tile.rows > 1 else []
    if axis_of(tile.instance, tile.instance.tensor(0), "kw") is None:
        first, size, columns = taps[0].x, run, tile.columns
        loops, points = tile.loops(), [*rows, ("j", along)]
    else:
        first = min(tap.x for tap in taps)
        last = max(tap.x + (tap.high - 1 - tap.low) * along for tap in taps)
        size, columns, points = last + run - first, 1, rows
        loops = f"UNROLL for (int q = 0; q < {tile.rows}; q++)" if rows else ""
    steps = {"q": size * columns, "j": size}
    to = plus(WIDE, total([(steps[name], name) for name, _ in points]))
    place = plus(pointer, total([(step, name) for name, step in points], first))
    writer.line(
        f"int16_t {WIDE}[{tile.rows * columns * size}] __attribute__((aligned({ALIGNED})));"
    )
    writer.line(f"{loops} widen({to}, {place}, {size});".strip())
    writer.line(f"KEEP({WIDE});")
    return first, (steps["q"] if rows else 0, size if columns > 1 else along)
