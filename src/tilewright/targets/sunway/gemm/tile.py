"""A CPE's product of tiles in its LDM: the functions of slave/gemm.h.

``gemm_taps_16`` (and ``_8``, ``_4``): 16 (8, 4) output channels of four output positions, over the
taps of a window (kernel positions; a matrix product has one tap) and the input channels::

    y[co][0..3] += sum over taps and ci of  w[tap][ci][co] * x_p[tap][ci]      p = 0..3

Weights are loaded as vectors of channels, inputs as single elements in all lanes, so inputs may
lie anywhere: strides, dilations and rows of any length cost nothing. What lies in the padding
points to a zero and stays there (step 0). Results lie position by position in LDM, so the block is
transposed as it is loaded and stored. Vectors lie at multiples of 16 bytes where rows of positions
and of channels have multiples of four; ``Placing`` has the functions for those that do not. The
last one to three channels of a tile are computed as the end of a vector that begins before them.

``gemm_dots``: four rows of one matrix by four rows of another, whose elements lie side by side
along the reduction (fully connected layers); lanes are summed at the end. Where there are many
rows, panel.py turns one of the matrices.

Every function stands here as a list of instructions with their C (``TapsCode``, ``dots``), and its
cycles follow from the pipeline model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from tilewright.targets.sunway.gemm.steps import (
    COLUMNS,
    LOOP,
    Code,
    Operand,
    advance,
    deferred,
    first_operands,
    load,
    splat,
    step,
    store,
    transpose,
    woven,
)
from tilewright.targets.sunway.pipeline import LATENCIES, Instruction, Latencies, cycles, steady


@dataclass(frozen=True)
class Cycles:
    """The cycles of a block: ``block + taps * (tap + depth * step)``."""

    step: float
    tap: float
    block: float


@dataclass
class Parts:
    """The instructions of a function by what repeats them."""

    begin: list[Instruction] = field(default_factory=list[Instruction])
    body: list[Instruction] = field(default_factory=list[Instruction])
    """A step of the reduction but the last of a tap."""
    turn: list[Instruction] = field(default_factory=list[Instruction])
    """The last step of a tap, with the first operands of the next."""
    end: list[Instruction] = field(default_factory=list[Instruction])

    def cycles(self, latencies: Latencies = LATENCIES) -> Cycles:
        """From the pipeline model."""
        rounds = 8
        steady_cycles = steady(self.body, latencies)
        tap = [*self.body * rounds, *self.turn]
        return Cycles(
            steady_cycles,
            steady(tap, latencies) - (rounds + 1) * steady_cycles,
            cycles([*self.begin, *tap, *self.end], latencies) - steady(tap, latencies),
        )


class Placing(Enum):
    """The vectors of a function that may be at any multiple of an element; a suffix of its name."""

    ALIGNED = ""
    RESULTS = "u"
    ALL = "w"
    """Weights, too: two loads and a merge for each, in the loop."""


def _operands(rows: int, placing: Placing) -> list[Operand]:
    """Vectors of weights and elements of inputs, from where the pointers are."""
    weights: list[Operand] = []
    for r in range(rows):
        place = f"w + {4 * r}" if r else "w"
        *parts, loaded = load(f"a{r}", "w", place, aligned=placing is not Placing.ALL)
        weights.append(Operand(f"a{r}", loaded, tuple(parts)))
    return [*weights, *(Operand(f"b{p}", splat(f"b{p}", f"x{p}", f"x{p}")) for p in range(COLUMNS))]


def _pointers() -> list[Instruction]:
    """The pointers and steps of a tap, from its table."""
    program: list[Instruction] = []
    for name, member in (("x", "x"), ("s", "step")):
        for p in range(COLUMNS):
            text = f"{name}{p} = tap->{member}[{p}];"
            program.append(Instruction("ldl", f"{name}{p}", ("tap",), text))
    program.append(Instruction("ldl", "w", ("tap",), "w = weights + tap->w;"))
    return program


def taps(rows: int, placing: Placing = Placing.ALIGNED) -> tuple[str, Parts]:
    """C and instructions of ``gemm_taps``: four, two or one vector of output channels."""
    parts, code = Parts(), Code()
    lanes = 4 * rows
    name = f"gemm_taps_{lanes}{placing.value}"
    aligned = placing is Placing.ALIGNED
    accumulators = [[f"c{r}{p}" for p in range(COLUMNS)] for r in range(rows)]
    for row in accumulators:
        code.line(f"floatv4 {', '.join(row)};")
    code.line("floatv4 " + ", ".join(f"a{r}" for r in range(rows)) + ", b0, b1, b2, b3;")
    code.line("floatv4 t0, t1, t2, t3;")
    code.line("const float *x0, *x1, *x2, *x3, *w;")
    code.line("long s0, s1, s2, s3;")

    def results(r: int, move: Callable[..., list[Instruction]]) -> list[Instruction]:
        places = [f"y + {4 * r + p} * plane" if r or p else "y" for p in range(COLUMNS)]
        pairs = zip(accumulators[r], places, strict=True)
        return [i for c, place in pairs for i in move(c, "y", place, aligned=aligned)]

    operands = _operands(rows, placing)
    reads = [results(r, load) for r in range(rows)]
    parts.begin = [*reads[0]]
    for r in range(1, rows):
        parts.begin += woven(reads[r], transpose(accumulators[r - 1]))
    pointers = [*_pointers(), *first_operands(rows, operands)]
    parts.begin += woven(pointers, transpose(accumulators[-1]))
    code.emit(parts.begin)
    code.open("while (count-- > 0)")
    code.open("for (long k = depth; k > 1; k--)")
    advances = [advance("w", "pitch"), *(advance(f"x{p}", f"s{p}") for p in range(COLUMNS))]
    parts.body = code.emit(step(rows, operands, advances, LOOP))
    code.close()
    code.line("tap += count > 0;")
    ahead = Instruction("addl", "tap", ("tap", "count"))
    parts.turn = [ahead, *code.emit(step(rows, operands, _pointers(), LOOP))]
    code.close()
    writes = [results(r, store) for r in range(rows)]
    flips = [transpose(row) for row in accumulators]
    parts.end = [*flips[0]]
    for r in range(1, rows):
        parts.end += woven(flips[r], writes[r - 1])
    parts.end += writes[-1]
    code.emit(parts.end)
    head = [
        f"/* {lanes} output channels of four positions. */",
        f"static inline void {name}(float *y, long plane, const struct gemm_tap *tap, long count,",
        f"{' ' * (len(name) + 20)}const float *weights, long pitch, long depth)",
        "{",
    ]
    return "\n".join([*head, *code.lines, "}", ""]), parts


def dots() -> tuple[str, Parts]:
    """C and instructions of ``gemm_dots``: four rows by four rows, four of the reduction a step."""
    parts, code = Parts(), Code()
    names = [[f"c{r}{p}" for p in range(COLUMNS)] for r in range(4)]
    code.line("const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];")
    code.line("const float *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];")
    code.line("floatv4 a0, a1, a2, a3, b0, b1, b2, b3, t0, t1, t2, t3;")
    for row in names:
        code.line(f"floatv4 {', '.join(row)};")
    code.line("const float zero = 0.0f;")
    operands = [
        Operand(f"{v}{n}", load(f"{v}{n}", f"{p}{n}", f"{p}{n}")[0])
        for v, p in (("a", "x"), ("b", "w"))
        for n in range(4)
    ]
    zeros = [
        Instruction("vshff", c, (), f"{c} = c00;" if c != "c00" else "simd_loade(c00, &zero);")
        for row in names
        for c in row
    ]
    parts.begin = code.emit(woven(zeros, first_operands(4, operands)))
    advances = [
        Instruction("addl", f"{p}{n}", (f"{p}{n}",), f"{p}{n} += 4;")
        for p in ("x", "w")
        for n in range(4)
    ]
    code.open("for (long k = depth; k > 1; k--)")
    parts.body = code.emit(step(4, operands, advances, LOOP))
    code.close()
    delayed = [operand for operand in operands if operand.register in deferred(4)]
    parts.turn = code.emit(step(4, delayed, []))
    for row in names:
        parts.end += code.emit(transpose(row))
    for left, right in ((0, 1), (2, 3), (0, 2)):
        for row in names:
            c, other = row[left], row[right]
            text = f"{c} = simd_vadds({c}, {other});"
            parts.end += code.emit([Instruction("vadds", c, (c, other), text)])
    for number, row in enumerate(names):
        parts.end += code.emit(store(row[0], "sums", f"sums + {4 * number}"))
    head = [
        "/* sums[4 * i + j]: the sum of x[i][k] * w[j][k] over `depth` vectors of four k. */",
        "static inline void gemm_dots(float *sums, const float *const *x, const float *const *w,",
        "                             long depth)",
        "{",
    ]
    return "\n".join([*head, *code.lines, "}", ""]), parts


def tile_parts() -> dict[str, str]:
    """Files that slave/gemm.h includes: a person reads a file of less than 400 lines."""
    parts: dict[str, str] = {}
    for rows in (4, 2, 1):
        near = (taps(rows, placing)[0] for placing in (Placing.ALIGNED, Placing.RESULTS))
        parts[f"gemm_{4 * rows}.h"] = "\n".join(near)
        parts[f"gemm_{4 * rows}w.h"] = taps(rows, Placing.ALL)[0]
    return {**parts, "gemm_dots.h": dots()[0]}
