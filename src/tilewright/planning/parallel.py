"""Parts for cores with memories of their own, by swTVM's rule (section 5.4).

``athread_parallel`` splits the highest dim of the written tensor: of n indices core number i takes
those from i * c up to (i + 1) * c, with c = ceil(n / cores). Where a dim has fewer indices than
there are cores, it is fused with the next one until there are enough, or none is left. Only dims of
the written tensor are split, so no two cores write one element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod


@dataclass(frozen=True)
class Parts:
    """The size of a part along every dim that is split, the outermost first."""

    sizes: tuple[tuple[str, int], ...]
    extents: tuple[tuple[str, int], ...]
    cores: int

    @property
    def count(self) -> int:
        """Parts of the whole."""
        extents = dict(self.extents)
        return prod(ceil(extents[dim] / size) for dim, size in self.sizes)

    @property
    def rounds(self) -> int:
        """Parts of the core that has most of them."""
        return ceil(self.count / self.cores)

    @property
    def idle(self) -> int:
        """Cores without a part."""
        return self.cores - ceil(self.count / self.rounds)


def parallel_parts(
    dims: Sequence[str], extents: Mapping[str, int], cores: int, granules: Mapping[str, int]
) -> Parts:
    """The parts of ``dims``, the written tensor's that may be split, the highest first.

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
        return Parts((), (), cores)
    each = ceil(prod(extents[d] for d in fused) / cores)
    *outer, last = fused
    sizes = {dim: min(granules.get(dim, 1), extents[dim]) for dim in outer}
    granule = granules.get(last, 1)
    sizes[last] = min(ceil(each / granule) * granule, extents[last])
    cut = tuple((dim, size) for dim, size in sizes.items() if size < extents[dim])
    return Parts(cut, tuple((dim, extents[dim]) for dim, _ in cut), cores)
