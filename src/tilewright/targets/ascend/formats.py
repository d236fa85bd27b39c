"""The block formats of DaVinci as layouts (planning/layout.py).

A block has 16 rows or columns, and C0 elements along the other side: 16 of 2 bytes, 32 of 1 byte.
Of the names, the small letter tells how elements lie in a block and the capital how blocks lie in
the matrix: z by rows, n by columns. With N the axis of columns of a matrix M x N:

==========  ====================================================================================
Nz          [N/C0][M/16][16][C0]: matrices in main memory and L1, and results in L0C
Zz          [M/16][N/C0][16][C0]: left operands in L0A
Zn          [M/C0][N/16][16 columns][C0 rows]: right operands in L0B, M the axis that is summed
NC1HWC0     [N][C/C0][H][W][C0]: images
FRACTAL_Z   [C1 Kh Kw][Co/16][16][C0]: weights of convolutions, Zn of their matrix
==========  ====================================================================================
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.planning.layout import Factor, Layout
from tilewright.targets.ascend.machine import BLOCK, CUBE


def block_elements(element_bytes: int) -> int:
    """C0: elements of a block's short side."""
    return BLOCK // element_bytes


def nz(element_bytes: int = 2) -> str:
    """Layout of a matrix by columns of blocks."""
    return f"NM16m{block_elements(element_bytes)}n"


def image(element_bytes: int = 2) -> str:
    """Return the layout of images."""
    return f"NCHW{block_elements(element_bytes)}c"


def convolution_weight(element_bytes: int = 2) -> str:
    """Layout of the weights of convolutions."""
    return f"IHWO16o{block_elements(element_bytes)}i"


def padded(extent: int, block: int = CUBE) -> int:
    """An extent rounded up to whole blocks."""
    return -(-extent // block) * block


def matrices(rank: int, *, turned: bool = False, element_bytes: int = 2) -> Layout:
    """Nz of the last two axes; ``turned`` of them exchanged."""
    inner = Layout.parse(nz(element_bytes), 2)
    outer = tuple(Factor(axis) for axis in range(rank - 2))
    axes = (rank - 1, rank - 2) if turned else (rank - 2, rank - 1)
    moved = tuple(replace(factor, axis=axes[factor.axis]) for factor in inner.factors)
    return Layout(rank, (*outer, *moved))


def heads() -> str:
    """Layout of [batch, tokens, heads, columns] where [batch, tokens, heads x columns] is in Nz,
    and [batch, heads, tokens, columns], too: no data moves between the three."""
    return "NHWC16c16w"
