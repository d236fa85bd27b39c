"""The sizes of tiles worth trying along each dim of a kernel on one primitive.

Candidate sizes of a dim of extent D are ceil(D / n) for every n: any other size needs as many tiles
as one of these and only makes the last one smaller. Where compute is rounded to a granule g they
are g * ceil(ceil(D / g) / n), because sizes in between compute no less and hold more. Two kinds of
sizes are tried only when nothing else fits, or what fits is far from the bound: sliding windows cut
into parts (the halo is loaded for every part), and sizes below the granule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tilewright.machine import Primitive
from tilewright.planning.cost.bounds import PRODUCTS
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.space.footprint import Ints, Use
from tilewright.planning.space.residents import whole_sums

EFFORTS = ((False, False), (True, False), (False, True), (True, True))
"""The efforts of the search: whether windows are cut, and whether sizes below the granule are
tried; the preferred first."""

FURTHER_BATCHES = frozenset(f"b{axis}" for axis in range(1, 8))
"""Batch dims of a product after its first: an instruction covers one, loops the others."""


def candidate_sizes(
    extent: int, granule: int = 1, limit: int | None = None, small: bool = False
) -> list[int]:
    """Tile sizes worth trying along a dim, descending; ``small`` adds those below the granule."""
    most = min(limit or extent, extent)
    if extent <= granule:
        sizes = {extent}
    else:
        blocks = -(-extent // granule)
        sizes = {min(-(-blocks // n) * granule, extent) for n in range(1, blocks + 1)}
    if most < extent:
        sizes.add(max(most // granule * granule, 1) if most >= granule else most)
    if small:
        sizes |= {
            size for size in range(1, min(granule, extent + 1)) if _is_even_part(size, extent)
        }
    return sorted((size for size in sizes if size <= most), reverse=True) or [most]


def _is_even_part(size: int, extent: int) -> bool:
    """Return True if tiles of the size are the smallest that give the same number of tiles."""
    return size == -(-extent // -(-extent // size))


def tile_sizes(
    kernel: Kernel,
    primitive: Primitive,
    uses: Sequence[Use],
    *,
    cut: bool,
    small: bool = False,
    granular: bool = True,
) -> dict[str, Ints]:
    """Candidate sizes of every dim, descending, reductions first.

    ``cut`` lets windows be cut into parts, ``small`` adds sizes below the granule, and without
    ``granular`` the primitive's granules do not count.
    """
    extents, reduction = kernel.anchor.extents, kernel.anchor.reduction
    # Only sums of products are split gladly: partial results of others need more than adding.
    products = kernel.anchor.operation in (*PRODUCTS, "sparse_product")
    operands = [use.operand for use in uses]
    windows = overlapping(operands, extents, reduction) if products else set(reduction)
    sizes: dict[str, Ints] = {}
    for dim in (*reduction, *(d for d in extents if d not in reduction)):
        extent = extents[dim]
        granule = primitive.multiples.get(dim, 1) if granular else 1
        limit = 1 if dim in FURTHER_BATCHES else primitive.limits.get(dim)
        uncut = dim in windows and not cut and (limit or extent) >= extent
        if dim in primitive.whole or dim in whole_sums(kernel) or uncut:
            candidates = [extent]
        else:
            between = dim not in primitive.blocks
            candidates = candidate_sizes(extent, granule, limit, small and between)
        sizes[dim] = np.array(candidates, np.int64)
    return sizes


def overlapping(
    operands: Iterable[Operand], extents: Mapping[str, int], reduction: Sequence[str]
) -> set[str]:
    """Reduction dims that slide along a parallel dim with overlap, such as kh along oh."""
    dims: set[str] = set()
    for operand in operands:
        for axis in operand.access:
            steps = [abs(c) for d, c in axis.terms if d not in reduction and extents.get(d, 1) > 1]
            for dim, c in axis.terms:
                if dim in reduction and any(step < abs(c) * extents[dim] for step in steps):
                    dims.add(dim)
    return dims
