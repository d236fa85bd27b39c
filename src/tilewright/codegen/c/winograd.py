"""One dimension of Winograd's transforms as C: B^T of a tile's inputs, A^T of its products.

``i`` are elements ``step`` apart, ``o`` what becomes of them side by side, both of type ``vec``;
what rows share is computed once (winograd.c.in).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.system.template import filled

_TILES, _PAIRS = (8, 6, 4), ((6, 8), (4, 6), (2, 6), (2, 4))


def _text(name: str) -> str:
    """The transform of a name in the template, without the others."""
    names = [*(f"input_{inner}" for inner in _TILES), *(f"output_{t}_{n}" for t, n in _PAIRS)]
    template = Path(__file__).parent / "winograd.c.in"
    return filled(template, **{each: each == name for each in names})


INPUT: Mapping[int, str] = {inner: _text(f"input_{inner}") for inner in _TILES}
"""C of the input transforms, by the extent of a transformed tile."""

OUTPUT: Mapping[tuple[int, int], str] = {(t, n): _text(f"output_{t}_{n}") for t, n in _PAIRS}
"""C of the output transforms, by the extents of a tile of outputs and of a transformed tile."""
