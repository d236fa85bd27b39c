"""A CPE's matrix product where both factors lie along the reduction: panels turned in LDM.

Sixteen rows of the weights are turned into a panel, ``GEMM_DEPTH`` steps of the reduction at a
time, so that output channels lie side by side; then four rows of the result are multiplied out of
registers for each step, as in convolutions::

    y[0..3][co] += sum over k of  panel[k][co] * x[0..3][k]

Results lie along the output channels, so nothing is turned back. Turning a panel takes as long as
four rows of products: few rows are multiplied by ``gemm_dots`` (tile.py), without panels, whose
lanes are summed at the end. ``gemm_product`` takes whichever is faster by the figures that plans
have, too (machine.py)."""

from __future__ import annotations

from tilewright.targets.sunway.gemm.steps import (
    COLUMNS,
    LOOP,
    Code,
    Operand,
    first_operands,
    late,
    load,
    splat,
    step,
    store,
    transpose,
)
from tilewright.targets.sunway.gemm.tile import Parts, tile_parts, tile_text
from tilewright.targets.sunway.pipeline import Instruction

DEPTH = 64
"""Steps of the reduction in a panel, which lies on the stack: 4 KB."""

LANES = 16
"""Output channels of a panel."""


def columns() -> tuple[str, Parts]:
    """C and instructions of ``gemm_columns``: four vectors of channels, four rows."""
    parts, code = Parts(), Code()
    names = [[f"c{r}{p}" for p in range(COLUMNS)] for r in range(4)]
    for row in names:
        code.line(f"floatv4 {', '.join(row)};")
    code.line("floatv4 a0, a1, a2, a3, b0, b1, b2, b3;")
    code.line("const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];")

    def places() -> list[tuple[str, str]]:
        return [
            (c, " + ".join(part for part in ("y", p and f"{p} * ldy", r and f"{4 * r}") if part))
            for r, row in enumerate(names)
            for p, c in enumerate(row)
        ]

    operands = [
        *(Operand(f"a{r}", load(f"a{r}", "w", f"w + {4 * r}" if r else "w")[0]) for r in range(4)),
        *(Operand(f"b{p}", splat(f"b{p}", f"x{p}", f"x{p}")) for p in range(COLUMNS)),
    ]
    parts.begin = [i for c, place in places() for i in load(c, "y", place)]
    parts.begin += first_operands(4, operands)
    code.emit(parts.begin)
    advances = [Instruction("addl", "w", ("w",), f"w += {LANES};")]
    advances += [Instruction("addl", f"x{p}", (f"x{p}",), f"x{p}++;") for p in range(COLUMNS)]
    code.open("for (; k > 1; k--)")
    parts.body = code.emit(step(4, operands, advances, LOOP))
    code.close()
    lates = [own for own in operands if own.register in late(4)]
    parts.end = code.emit(step(4, lates, []))
    parts.end += code.emit([i for c, place in places() for i in store(c, "y", place)])
    head = [
        "/* Sixteen output channels of four rows: k steps out of a panel. */",
        "static inline void gemm_columns(float *y, long ldy, const float *const *x,",
        "                                const float *w, long k)",
        "{",
    ]
    return "\n".join([*head, *code.lines, "}", ""]), parts


def turning() -> list[Instruction]:
    """Four by four weights, turned from LDM to a panel."""
    names = [f"r{n}" for n in range(4)]
    reads = [i for n, r in enumerate(names) for i in load(r, "w", f"w + (j + {n}) * ldw + k")]
    writes = [
        i for n, r in enumerate(names) for i in store(r, "to", f"to + (k + {n}) * {LANES} + j")
    ]
    return [*reads, *transpose(names), *writes]


_TURN = """\
/* A panel: to[k * 16 + j] = w[j * ldw + k] for 16 rows of `depth` elements. */
static inline void gemm_turn(float *to, const float *w, long ldw, long depth)
{
    long whole = 0;
    if ((size_t)w % 16 == 0 && ldw % 4 == 0) {
        floatv4 r0, r1, r2, r3, t0, t1, t2, t3;
        whole = depth / 4 * 4;
        for (long j = 0; j < 16; j += 4)
            for (long k = 0; k < whole; k += 4) {
@
            }
    }
    for (long k = whole; k < depth; k++)
        for (long j = 0; j < 16; j++)
            to[k * 16 + j] = w[j * ldw + k];
}

"""

_PRODUCT = """\
/* Whether rows of a result are worth panels: turned once, they spare the sums of lanes. */
static inline int gemm_turns(long rows, long depth)
{
    return (rows + 3) / 4 * (depth + 540) > 18 * depth;
}

/* y[i * ldy + j] += the sum of x[i * ldx + k] * w[j * ldw + k], by panels; columns come in 16. */
static inline void gemm_by_panels(float *y, long ldy, const float *x, long ldx, long rows,
                                  const float *w, long ldw, long columns, long depth)
{
    float panel[16 * GEMM_DEPTH] __attribute__((aligned(32)));
    float block[64] __attribute__((aligned(32)));
    for (long j = 0; j < columns; j += 16)
        for (long k = 0; k < depth; k += GEMM_DEPTH) {
            const long deep = MIN(GEMM_DEPTH, depth - k);
            gemm_turn(panel, w + j * ldw + k, ldw, deep);
            for (long i = 0; i < rows; i += 4) {
                const long tall = MIN(4, rows - i);
                float *to = y + i * ldy + j;
                const int whole = tall == 4 && (size_t)to % 16 == 0 && ldy % 4 == 0;
                const float *xs[4];
                for (long p = 0; p < 4; p++)
                    xs[p] = x + (i + MIN(p, tall - 1)) * ldx + k;
                if (!whole)
                    for (long p = 0; p < 4; p++)
                        for (long c = 0; c < 16; c++)
                            block[p * 16 + c] = p < tall ? to[p * ldy + c] : 0.0f;
                gemm_columns(whole ? to : block, whole ? ldy : 16, xs, panel, deep);
                if (!whole)
                    for (long p = 0; p < tall; p++)
                        for (long c = 0; c < 16; c++)
                            to[p * ldy + c] = block[p * 16 + c];
            }
        }
}

/* The same without panels, four rows by four; the result's columns lie `step` apart. */
static inline void gemm_by_dots(float *y, long ldy, long step, const float *x, long ldx, long rows,
                                const float *w, long ldw, long columns, long depth)
{
    float sums[16] __attribute__((aligned(32)));
    const float *xs[4], *ws[4];
    for (long i = 0; i < rows; i += 4)
        for (long j = 0; j < columns; j += 4) {
            const long tall = MIN(4, rows - i), wide = MIN(4, columns - j);
            for (long p = 0; p < 4; p++) {
                xs[p] = x + (i + MIN(p, tall - 1)) * ldx;
                ws[p] = w + (j + MIN(p, wide - 1)) * ldw;
            }
            gemm_rows(sums, xs, ws, depth);
            for (long p = 0; p < tall; p++)
                for (long c = 0; c < wide; c++)
                    y[(i + p) * ldy + (j + c) * step] += sums[4 * p + c];
        }
}

/* y[i * ldy + j * step] += the sum of x[i * ldx + k] * w[j * ldw + k], the faster way. */
static inline void gemm_product(float *y, long ldy, long step, const float *x, long ldx, long rows,
                                const float *w, long ldw, long columns, long depth)
{
    const long turned = step == 1 && gemm_turns(rows, depth) ? columns / 16 * 16 : 0;
    gemm_by_panels(y, ldy, x, ldx, rows, w, ldw, turned, depth);
    gemm_by_dots(y + turned * step, ldy, step, x, ldx, rows, w + turned * ldw, ldw,
                 columns - turned, depth);
}

"""


def headers() -> dict[str, str]:
    """Files of slave/ by name: gemm.h, and what it includes."""
    parts = {
        name: f"/* A part of gemm.h. Written by gemm/tile.py. */\n{text}"
        for name, text in tile_parts().items()
    }
    return {"gemm.h": _header_text(), **parts}


def _header_text() -> str:
    turned = Code(depth=4)
    turned.emit(turning())
    turn = _TURN.replace("@", "\n".join(turned.lines))
    depth = f"/* Steps of the reduction in a panel. */\n#define GEMM_DEPTH {DEPTH}\n\n"
    return f"{tile_text()}\n{depth}{columns()[0]}\n{turn}{_PRODUCT}#endif\n"
