"""Products of tiles that the CPEs of the mesh multiply together, a tile of the reduction after the
other: swATOP's products over the mesh (its appendix) in networks.

In turn t the CPEs of column t have the rows' tile in their LDM, and send it along their rows; those
of row t have the columns' tile, and send it along their columns, in panels (panel.py) that they
turn before. Everyone multiplies what comes out of the buses, by the loops of mesh.py: one for each
of the four roles, vectors along the result's columns. Nothing of what others send is kept in LDM.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.targets.sunway.gemm.mesh import ROLES, role_loop

_HEAD = """\
/* Products over the mesh of CPEs, whose tiles take turns. Written by gemm/turns.py. */
#ifndef TURNS_H
#define TURNS_H

#include "gemm.h"
#include "mesh.h"

"""

_PRODUCT = """\
/* y[i * ldy + j] += the sum of x[i * ldx + k] * w[j * ldw + k], x and w being those of the CPEs
   whose turn it is. Rows come in 4, columns in 16. */
static inline void gemm_in_turns(int turn, float *y, long ldy, const float *x, long ldx, long rows,
                                 const float *w, long ldw, long columns, long depth)
{
    float panel[16 * GEMM_DEPTH] __attribute__((aligned(32)));
    const int puts_x = lane_in(ROW_OF_MESH) == turn, puts_w = lane_in(COLUMN_OF_MESH) == turn;
    for (long j = 0; j < columns; j += 16)
        for (long k = 0; k < depth; k += GEMM_DEPTH) {
            const long deep = MIN(GEMM_DEPTH, depth - k);
            if (puts_w)
                gemm_turn(panel, w + j * ldw + k, ldw, deep);
            for (long i = 0; i < rows; i += 4) {
                float *to = y + i * ldy + j;
                const float *s = x + i * ldx + k;
@
            }
        }
}

#endif
"""


def headers() -> dict[str, str]:
    """Files of slave/ by name: turns.h, and the loops of the roles, which it includes."""
    parts: dict[str, str] = {}
    for sends in (False, True):
        loops = [role_loop("n", r, fused=False).text for r in ROLES if r.sends_vectors == sends]
        name = "turns_put.h" if sends else "turns_get.h"
        parts[name] = "/* A part of turns.h. Written by gemm/turns.py. */\n" + "\n".join(loops)
    return {"turns.h": _header_text(sorted(parts)), **parts}


def _header_text(parts: Sequence[str]) -> str:
    calls: list[str] = []
    for role in ROLES:
        own = "puts_w" if role.sends_vectors else "!puts_w"
        own += " && puts_x" if role.sends_elements else " && !puts_x"
        calls += [
            f"                if ({own})",
            f"                    gemm_n_{role.name}(to, ldy, panel, 16, s, ldx, 1, deep);",
        ]
    loops = [f'#include "{name}"' for name in parts]
    return _HEAD + "\n".join([*loops, "", _PRODUCT.replace("@", "\n".join(calls))])
