"""One step of a product's reduction: the weights' vectors, and a row of multiply-adds.

Elements of 16 bits and less are taken several at a time: a step of the channels is such a word, of
which each lane adds up the products (integers.h, shorts.h).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus, total
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.registers import FOLDED
from tilewright.targets.cpu.primitives.ahead import Ahead
from tilewright.targets.cpu.primitives.chain import weights_at


@dataclass(frozen=True)
class Word:
    """The C functions that multiply and add up the elements of one word."""

    elements: int
    image: str
    """The C function that gives one word of the image in every lane."""
    part: str
    """C function of some elements of a word: it takes how many to skip, and how many to take."""
    weights: str
    dot: str
    bytes: bool = True
    """True if the image's elements are bytes."""
    widened: bool = False
    """True if the image's elements are widened to 16 bits before words are taken (widened.py)."""


FOUR_BYTES = Word(4, "word_at", "word_part", "words_at", "dot_v")
TWO_BYTES = Word(
    *(2, "wide_pair_at", "wide_pair_part", "byte_pairs_at", "dot_wide_v"), widened=True
)
SHORT_PAIRS = Word(2, "pair_at", "pair_part", "pairs_at", "dot_pairs_v", bytes=False)


def word_of(x: Address, w: Address) -> Word | None:
    """The words of an image and its weights; None if elements are taken one by one."""
    if x.element == "bfloat16":
        return SHORT_PAIRS
    if x.element != "uint8":
        return None
    within = {
        factor.modulus
        for factor in w.layout.factors
        if factor.divisor == 1 and "ci" in w.window[factor.axis].dims
    }
    return TWO_BYTES if TWO_BYTES.elements in within else FOUR_BYTES


@dataclass(frozen=True)
class Tile:
    """The register tile: ``rows`` x ``columns`` points, ``vectors`` of output channels."""

    instance: Instance
    row: str
    column: str
    ahead: Ahead | None = None
    """The prefetch of the next weights in each step."""

    @cached_property
    def word(self) -> Word | None:
        """The words of the operands, if elements are taken by several."""
        return word_of(self.instance.tensor(0), self.instance.tensor(1))

    @property
    def bytes(self) -> bool:
        """True if the operands are 8-bit integers."""
        return self.word is not None and self.word.bytes

    @property
    def lane_type(self) -> str:
        """C's type of an accumulator."""
        return "ivec" if self.bytes else "vec"

    @property
    def rows(self) -> int:
        """The number of rows of points."""
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

    @property
    def point_steps(self) -> tuple[int, int]:
        """Elements of the image from one point to the next, along rows and columns."""
        x = self.instance.tensor(0)
        down = self.instance.step(x, self.row, self.rows) if self.rows > 1 else 0
        return down, self.instance.step(x, self.column, self.columns)


@dataclass(frozen=True)
class Loop:
    """One loop: its C variable, its count (a number or a C expression), its two steps."""

    variable: str
    count: int | str
    x: int
    w: int

    @property
    def head(self) -> str:
        """The C before the body of the loop."""
        return f"for (long {self.variable} = 0; {self.variable} < {self.count}; {self.variable}++)"


@dataclass(frozen=True)
class Tap:
    """One tap: the columns for which it is inside, and where its operands lie."""

    low: int
    high: int
    x: int
    w: int


def joined(loops: Sequence[Loop]) -> list[Loop]:
    """The loops without those of one round, and with those joined that step as one."""
    loops_left: list[Loop] = []
    for loop in loops:
        if loop.count == 1:
            continue
        if loops_left and isinstance(loops_left[-1].count, int) and isinstance(loop.count, int):
            outer = loops_left[-1]
            if (outer.x, outer.w) == (loop.x * loop.count, loop.w * loop.count):
                loops_left[-1] = Loop(loop.variable, outer.count * loop.count, loop.x, loop.w)
                continue
        loops_left.append(loop)
    return loops_left


def all_alike(tile: Tile, taps: Sequence[Tap], across: Loop) -> bool:
    """Return True if each tap is inside for all columns, so that a loop can run over them."""
    whole = (0, tile.columns)
    return len(taps) == across.count and all((tap.low, tap.high) == whole for tap in taps)


@contextmanager
def pointer_loops(
    writer: Writer, x: Address, w: Address, loops: Sequence[Loop], pointers: tuple[str, str]
) -> Generator[tuple[str, str]]:
    """Write loops around what follows; gives the pointers to the image and the weights there."""
    xp, wp = pointers
    with ExitStack() as nest:
        for loop in loops:
            v = loop.variable
            nest.enter_context(writer.block(loop.head))
            writer.line(f"const {x.c_type} *x{v} = {plus(xp, total([(loop.x, v)]))};")
            writer.line(f"const {w.c_type} *w{v} = {plus(wp, total([(loop.w, v)]))};")
            xp, wp = f"x{v}", f"w{v}"
        yield xp, wp


def write_step(
    writer: Writer,
    tile: Tile,
    w: Address,
    tap: Tap,
    loops: Sequence[Loop],
    pointers: tuple[str, str],
    part: int,
    skip: int,
    steps: tuple[int, int] | None = None,
) -> None:
    """One step: the weights' vectors, and for each point a broadcast and its multiply-adds.

    ``steps`` are elements from one point to the next, along rows and columns; by default x's own.
    """
    instance, word = tile.instance, tile.word
    step_q, step_j = steps or tile.point_steps
    block = instance.block_step(w, "co")
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
