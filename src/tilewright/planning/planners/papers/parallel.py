"""Parts for cores with memories of their own, by swTVM's rule (section 5.4).

``athread_parallel`` splits the highest dim of the written tensor: of n indices core number i takes
those from i * c up to (i + 1) * c, with c = ceil(n / cores). Where a dim has fewer indices than
there are cores, it is fused with the next one until there are enough, or none is left. Only dims of
the written tensor are split, so no two cores write one element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod


def parallel_parts(
    dims: Sequence[str], extents: Mapping[str, int], cores: int, granules: Mapping[str, int]
) -> dict[str, int]:
    """The size of a part along every dim that is split, the outermost first.

    ``dims`` are the written tensor's that may be split, the highest first.
    Of fused dims the last one is split in as many indices as a core takes of all; sizes are
    multiples of the granules.
    """
    fused: list[str] = []
    for dim in dims:
        if extents[dim] == 1:
            continue
        fused.append(dim)
        if prod(extents[d] for d in fused) >= cores:
            break
    if not fused:
        return {}
    each = ceil(prod(extents[d] for d in fused) / cores)
    *outer, last = fused
    sizes = {dim: min(granules.get(dim, 1), extents[dim]) for dim in outer}
    granule = granules.get(last, 1)
    sizes[last] = min(ceil(each / granule) * granule, extents[last])
    return {dim: size for dim, size in sizes.items() if size < extents[dim]}
