"""The reduction of a product: loops over input channels and taps around one row of multiply-adds.

Bytes are taken four at a time, floats of 16 bits two: a step of the channels is such a word, of
which each lane adds up the products (integers.h, shorts.h).
Loops are data first: each has a count and a step through the input and through the weights. Two
that step as one through both are joined, so a kernel that covers its whole image runs as the
matrix product that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.planning.registers import FOLDED
from tilewright.targets.cpu.address import Address
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.ahead import Ahead
from tilewright.targets.cpu.primitives.chain import weights_at
from tilewright.targets.cpu.primitives.windows import Columns, axis_of
from tilewright.targets.cpu.source import Writer, plus, total

UNROLLED_TAPS = 8
"""Taps of a row that are written out when the loop within them would be short."""


@dataclass(frozen=True)
class Word:
    """How the elements of one word are multiplied and added up: C's functions."""

    elements: int
    image: str
    """Gives one word of the image in every lane."""
    part: str
    """The same, of some elements alone: behind how many of the word, and how many."""
    weights: str
    dot: str


WORDS = {
    "uint8": Word(4, "word_at", "word_part", "words_at", "dot_v"),
    "bfloat16": Word(2, "pair_at", "pair_part", "pairs_at", "dot_pairs_v"),
}
"""By the image's elements; of others there is one a step."""


@dataclass(frozen=True)
class Tile:
    """The register tile: ``rows`` x ``columns`` points, ``vectors`` of output channels."""

    instance: Instance
    row: str
    column: str
    mask: str = ""
    """C variable that keeps some lanes of the weights and clears the others; "" keeps all."""
    ahead: Ahead | None = None
    """What each step asks for of the next weights."""

    @property
    def word(self) -> Word | None:
        """The words of the operands, if elements are taken by several."""
        x = self.instance.anchor.inputs[0]
        return WORDS.get(x.element) if isinstance(x, Address) else None

    @property
    def bytes(self) -> bool:
        """Whether the operands are 8-bit integers."""
        return self.word is WORDS["uint8"]

    @property
    def lane_type(self) -> str:
        """C's type of an accumulator."""
        return "ivec" if self.bytes else "vec"

    @property
    def rows(self) -> int:
        """Rows of points."""
        return self.instance.size(self.row)

    @property
    def columns(self) -> int:
        """Points of a row."""
        return self.instance.size(self.column)

    @property
    def vectors(self) -> int:
        """Vectors of output channels."""
        return -(-self.instance.size("co") // self.instance.lanes)

    def lanes(self, v: int) -> int:
        """Lanes in use of vector ``v``."""
        lanes = self.instance.lanes
        return min(lanes, self.instance.size("co") - v * lanes)

    def loops(self, low: int = 0, high: int | None = None) -> str:
        """Unrolled loops over rows (q) and columns (j) of points."""
        rows = f"UNROLL for (int q = 0; q < {self.rows}; q++) " if self.rows > 1 else ""
        end = self.columns if high is None else high
        return rows + f"UNROLL for (int j = {low}; j < {end}; j++)"

    @property
    def point(self) -> str:
        """C index of a point's accumulators."""
        return f"q * {self.columns} + j" if self.rows > 1 else "j"

    def step(self, operand: Address, dim: str, count: int) -> int:
        """The operand's stride along a dim, which must be constant; 0 if it does not depend."""
        return self.instance.step(operand, dim, count)


@dataclass(frozen=True)
class Loop:
    """One loop: its C variable, its count (a number or a C expression), its two steps."""

    variable: str
    count: int | str
    x: int
    w: int


@dataclass(frozen=True)
class Tap:
    """One tap: the columns for which it is inside, and where its operands lie."""

    low: int
    high: int
    x: int
    w: int


@dataclass(frozen=True)
class Channels:
    """How the input channels are walked: ``count`` steps alike, or blocks of steps, and a rest."""

    loop: Loop | None
    """All channels as one loop; None if they lie in blocks."""
    block: Loop | None = None
    within: Loop | None = None
    """One block's channels."""
    rest: Loop | None = None
    """What does not fill a block, or a word: from where ``block`` or ``loop`` ends."""
    part: int = 0
    """Elements of the rest's one word; 0 if all can be read."""


def write_reduction(
    writer: Writer, tile: Tile, x: Address, w: Address, columns: Columns, rows: str
) -> None:
    """Write all loops of the reduction; ``rows`` is the C count of rows inside the image."""
    instance = tile.instance
    depth = instance.size("ci")
    count: int | str = int(rows) if rows.isdigit() else rows
    window = Loop("k", count, tile.step(x, "kh", 2), tile.step(w, "kh", 2))
    across = Loop("m", len(columns.spans), tile.step(x, "kw", 2), tile.step(w, "kw", 2))
    taps = taps_of(tile, x, columns, across)
    word = tile.word
    if word is not None:
        found = _words(tile, x, w, depth, word.elements)
    else:
        found = _elements(tile, x, w, depth)
    if found.loop is not None and found.loop.count:
        if found.loop.w > across.w > 0:
            write_loops(writer, tile, w, [found.loop, window], taps, across, [], ("x", "w"))
        else:
            write_loops(writer, tile, w, [window], taps, across, [found.loop], ("x", "w"))
    if found.block is not None and found.within is not None and found.block.count:
        outer, within = found.block, found.within
        write_loops(writer, tile, w, [outer, window], taps, across, [within], ("x", "w"))
    before = found.loop or found.block
    if found.rest is None or before is None:
        return
    with writer.block():
        assert isinstance(before.count, int)
        writer.line(f"const {x.c_type} *xr = {plus('x', total([], before.count * before.x))};")
        writer.line(f"const {w.c_type} *wr = {plus('w', total([], before.count * before.w))};")
        rest = [found.rest]
        write_loops(writer, tile, w, [window], taps, across, rest, ("xr", "wr"), found.part)


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


def taps_of(tile: Tile, x: Address, columns: Columns, across: Loop) -> list[Tap]:
    """The taps of a row that are inside for any column."""
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
    return taps


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

    ``part`` elements of one word are taken, behind ``skip`` that are zero; 0 takes whole words.
    """
    alike = len(taps) == across.count and all(
        (tap.low, tap.high) == (0, tile.columns) for tap in taps
    )
    short = not after or after[-1].count in range(UNROLLED_TAPS)
    if alike and not (short and len(taps) <= UNROLLED_TAPS):
        loops = _joined([*before, across, *after])
        before, after = loops[:-1], loops[-1:]
        taps = [Tap(0, tile.columns, 0, 0)]
    else:
        before, after = _joined(before), _joined(after)
    depth = writer.depth
    xp, wp = pointers
    x = tile.instance.tensor(0)
    for loop in before:
        v = loop.variable
        writer.line(f"for (long {v} = 0; {v} < {loop.count}; {v}++) {{")
        writer.depth += 1
        writer.line(f"const {x.c_type} *x{v} = {plus(xp, total([(loop.x, v)]))};")
        writer.line(f"const {w.c_type} *w{v} = {plus(wp, total([(loop.w, v)]))};")
        xp, wp = f"x{v}", f"w{v}"
    for number, tap in enumerate(taps):
        if number and not after:
            writer.line(f"FORGET({xp});")
        head = [
            f"for (long {a.variable} = 0; {a.variable} < {a.count}; {a.variable}++)" for a in after
        ]
        with writer.block(" ".join(head)):
            _multiply(writer, tile, w, tap, after, (xp, wp), part, skip)
    while writer.depth > depth:
        writer.depth -= 1
        writer.line("}")


def _joined(loops: Sequence[Loop]) -> list[Loop]:
    """The loops without those of one round, and with those joined that step as one."""
    found: list[Loop] = []
    for loop in loops:
        if loop.count == 1:
            continue
        if found and isinstance(found[-1].count, int) and isinstance(loop.count, int):
            outer = found[-1]
            if (outer.x, outer.w) == (loop.x * loop.count, loop.w * loop.count):
                found[-1] = Loop(loop.variable, outer.count * loop.count, loop.x, loop.w)
                continue
        found.append(loop)
    return found


def _multiply(
    writer: Writer,
    tile: Tile,
    w: Address,
    tap: Tap,
    loops: Sequence[Loop],
    pointers: tuple[str, str],
    part: int,
    skip: int,
) -> None:
    """One step: the weights' vectors, and for each point a broadcast and its multiply-adds."""
    instance, x, word = tile.instance, tile.instance.tensor(0), tile.word
    step_j = tile.step(x, tile.column, tile.columns)
    step_q = tile.step(x, tile.row, tile.rows) if tile.rows > 1 else 0
    block = w.block_stride("co", instance.lanes, instance.size("co"), instance.dims)
    if block is None:
        raise instance.cannot("the weights have no stride between vectors of output channels")
    # GCC tuned for AMD processors would read the weights again for each of a few points.
    pinned = 1 < tile.rows * (tap.high - tap.low) <= FOLDED
    if tile.ahead is not None:
        tile.ahead.write(writer)
    for v in range(tile.vectors):
        position = total([(loop.w, loop.variable) for loop in loops], tap.w + v * block)
        if word is not None:
            value = f"{word.weights}({plus(pointers[1], position)})"
        else:
            value = weights_at(instance, w, position, tile.lanes(v), pointers[1])
        if tile.mask:
            value = f"({'vec' if word is None else 'ivec'})((mask){value} & {tile.mask})"
        kind = "vec" if word is None else "ivec"
        writer.line(f"{'' if pinned else 'const '}{kind} w{v} = {value};")
        if pinned:
            writer.line(f"PIN(w{v});")
    terms = [(loop.x, loop.variable) for loop in loops]
    index = total([*terms, (step_j, "j"), (step_q, "q")], tap.x - tap.low * step_j)
    place = plus(pointers[0], index)
    with writer.block(tile.loops(tap.low, tap.high)):
        if word is None:
            writer.line(f"const float e = {pointers[0]}[{index}];")
        else:
            value = f"{word.part}({place}, {skip}, {part})" if part else f"{word.image}({place})"
            writer.line(f"const ivec e = {value};")
        for v in range(tile.vectors):
            sums = f"a[{tile.point}][{v}]"
            if word is None:
                writer.line(f"{sums} += e * w{v};")
            else:
                writer.line(f"{sums} = {word.dot}({sums}, e, w{v});")
