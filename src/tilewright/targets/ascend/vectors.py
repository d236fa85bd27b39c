"""Vector stages on what lies in UB: halves in blocks of 16, in repeats of 8 blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.codegen.nest.value import Value, least
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, REPEAT_BLOCKS
from tilewright.targets.ascend.program import Loop, Place, Statement

LANES = 128
"""Halves of a repeat."""

Strides = tuple[Sequence[Value], Sequence[Value]]
"""Of the result and each source, the blocks from one to the next, and from repeat to repeat."""


def flat(
    name: str,
    dst: Place,
    sources: Sequence[Place],
    repeats: Value,
    most: int,
    loop: str,
    *,
    strides: Strides | None = None,
    scalar: str = "",
) -> Statement:
    """An operation on so many whole repeats (``most`` at the most), of elements side by side if
    nothing else is said."""
    count = len(sources) + 1
    blocks, steps = strides or ((1,) * count, (REPEAT_BLOCKS,) * count)

    def piece(start: Value, repeat: Value) -> list[Statement]:
        to, *read = (
            place.at(start * step * BLOCK)
            for place, step in zip((dst, *sources), steps, strict=True)
        )
        return [isa.vector(name, to, read, repeat, blocks, steps, scalar)]

    return pieces(piece, repeats, most, loop)[0]


def fill(dst: Place, repeats: int, loop: str) -> Statement:
    """Zeros in so many repeats."""
    return flat("vector_dup", dst, (), repeats, repeats, loop, scalar="0")


def pieces(
    make: Callable[[Value, Value], list[Statement]],
    repeats: Value,
    most: int,
    loop: str,
    limit: int = MAX_REPEAT,
) -> list[Statement]:
    """Statements of at most so many repeats, or a loop of several such: ``make`` takes the first
    repeat and how many there are; ``most`` is the largest number of all."""
    count = -(-most // limit)
    if count == 1:
        return make(0, repeats)
    each = -(-most // count)
    around = Loop(loop, count if isinstance(repeats, int) else (repeats + (each - 1)) // each)
    start = around.variable * each
    even = isinstance(repeats, int) and repeats % each == 0
    around.body += make(start, each if even else least(each, repeats - start))
    return [around]


def add_rows(
    dst: Place,
    row: Place,
    blocks: Value,
    rows: Value,
    most: int,
    loop: str,
    *,
    relu: bool = False,
) -> Statement:
    """Add a row to every row of blocks of 16 columns, each of which holds all rows; then relu.

    ``row`` has the columns' halves side by side; there are ``most`` rows at the most, by eights.
    """
    around = Loop(loop, blocks)
    block = dst.at(around.variable * rows * BLOCK)
    columns = row.at(around.variable * BLOCK)
    repeats, largest = rows // REPEAT_BLOCKS, most // REPEAT_BLOCKS
    strides: Strides = (1, 1, 0), (REPEAT_BLOCKS, REPEAT_BLOCKS, 0)
    ends = block, (block, columns)
    around.body.append(flat("vadd", *ends, repeats, largest, f"{loop}_1", strides=strides))
    if relu:
        around.body.append(flat("vrelu", block, (block,), repeats, largest, f"{loop}_1"))
    return around
