"""Products of tiles that the CPEs of the mesh multiply together, a tile of the reduction after the
other: swATOP's products over the mesh (its appendix) in networks.

In turn t the CPEs of column t have the rows' tile in their LDM, and send it along their rows; those
of row t have the columns' tile, and send it along their columns, in panels (panel.py) that they
turn before. Everyone multiplies what comes out of the buses, by the loops of mesh.py: one for each
of the four roles, vectors along the result's columns. Nothing of what others send is kept in LDM.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.system.template import filled
from tilewright.targets.sunway.gemm.mesh import ROLES, role_loop


def headers() -> dict[str, str]:
    """Files of slave/ by name: turns.h, and the loops of the roles, which it includes."""
    parts: dict[str, str] = {}
    for sends in (False, True):
        loops = [role_loop("n", r, fused=False).text for r in ROLES if r.sends_vectors == sends]
        name = "turns_put.h" if sends else "turns_get.h"
        parts[name] = "/* A part of turns.h. Written by gemm/turns.py. */\n" + "\n".join(loops)
    calls: list[str] = []
    for role in ROLES:
        condition = "puts_w" if role.sends_vectors else "!puts_w"
        condition += " && puts_x" if role.sends_elements else " && !puts_x"
        calls += [
            f"                if ({condition})",
            f"                    gemm_n_{role.name}(to, ldy, panel, 16, s, ldx, 1, deep);",
        ]
    text = filled(
        Path(__file__).parent / "turns.h.in",
        loops="\n".join(f'#include "{name}"' for name in sorted(parts)),
        calls="\n".join(calls),
    )
    return {"turns.h": text, **parts}
