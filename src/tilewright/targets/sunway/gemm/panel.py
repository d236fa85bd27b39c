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

from pathlib import Path

from tilewright.codegen.c.template import filled
from tilewright.targets.sunway.gemm.steps import (
    COLUMNS,
    Code,
    Operand,
    declare_block,
    load,
    splat,
    store,
    transpose,
    write_block,
)
from tilewright.targets.sunway.gemm.tile import Parts, tile_parts
from tilewright.targets.sunway.pipeline import Instruction

DEPTH = 64
"""Steps of the reduction in a panel, which lies on the stack: 4 KB."""

LANES = 16
"""Output channels of a panel."""


def columns() -> tuple[str, Parts]:
    """C and instructions of ``gemm_columns``: four vectors of channels, four rows."""
    parts, code = Parts(), Code()
    declare_block(code)
    code.line("const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];")

    operands = [
        *(Operand(f"a{r}", load(f"a{r}", "w", f"w + {4 * r}" if r else "w")[0]) for r in range(4)),
        *(Operand(f"b{p}", splat(f"b{p}", f"x{p}", f"x{p}")) for p in range(COLUMNS)),
    ]
    advances = [Instruction("addl", "w", ("w",), f"w += {LANES};")]
    advances += [Instruction("addl", f"x{p}", (f"x{p}",), f"x{p}++;") for p in range(COLUMNS)]
    parts.begin, parts.body, parts.end = write_block(code, "y", operands, advances)
    head = [
        "/* Sixteen output channels of four rows: k steps out of a panel. */",
        "static inline void gemm_columns(float *y, long ldy, const float *const *x,",
        "                                const float *w, long k)",
        "{",
    ]
    return "\n".join([*head, *code.lines, "}", ""]), parts


def transposing() -> list[Instruction]:
    """Four by four weights, turned from LDM to a panel."""
    names = [f"r{n}" for n in range(4)]
    reads = [i for n, r in enumerate(names) for i in load(r, "w", f"w + (j + {n}) * ldw + k")]
    writes = [
        i for n, r in enumerate(names) for i in store(r, "to", f"to + (k + {n}) * {LANES} + j")
    ]
    return [*reads, *transpose(names), *writes]


def headers() -> dict[str, str]:
    """Files of slave/ by name: gemm.h, and what it includes."""
    parts = tile_parts()
    turned = Code(depth=4)
    turned.emit(transposing())
    text = filled(
        Path(__file__).parent / "gemm.h.in",
        parts="\n".join(f'#include "{name}"' for name in parts),
        depth=DEPTH,
        columns=columns()[0],
        transposing="\n".join(turned.lines),
    )
    about = "/* A part of gemm.h. Written by gemm/tile.py. */\n"
    return {"gemm.h": text, **{name: about + part for name, part in parts.items()}}
