"""An allocation problem of one memory, and its solution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from tilewright.memory.alignment import ALIGNMENT, align_up

FEWEST, SHORTEST, LOWEST, FULLEST, UPWARDS = RULES = range(5)
"""Rules by which the search chooses what comes next (search.py).

All but UPWARDS fill valleys, and name the valley that is filled next: with the fewest choices, over
the fewest sections, with the lowest floor, with the fewest bytes to lose. UPWARDS places the lowest
buffer next.
"""


@dataclass(frozen=True)
class Buffer:
    """A run of ``size`` bytes that is live from step ``first`` to step ``last``, both included."""

    name: str
    size: int
    first: int
    last: int
    address: int | None = None
    """Address in bytes at which it must lie; None: anywhere. A range that nothing may use is a
    buffer with an address that is live at all steps."""

    def overlaps(self, other: Buffer) -> bool:
        """Return True if both buffers are live at a common step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Problem:
    """An allocation problem: the buffers of one memory.

    Sizes are rounded up to the alignment, and every address that is chosen is a multiple of it.
    Raises ValueError where two buffers that are live together have addresses that overlap.
    """

    buffers: tuple[Buffer, ...]
    alignment: int = ALIGNMENT
    """Alignment of all offsets, in bytes."""
    capacity: int | None = None
    """Bytes of the memory; None: as many as are needed."""

    def __post_init__(self) -> None:
        fixed = [i for i, buffer in enumerate(self.buffers) if buffer.address is not None]
        for i in fixed:
            for j in self.neighbours[i]:
                a, b = self.buffers[i], self.buffers[j]
                if b.address is None or a.address is None or i > j:
                    continue
                if a.address < b.address + b.size and b.address < a.address + a.size:
                    raise ValueError(f"{a.name} and {b.name} are both to lie at {b.address}")

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes of each buffer, rounded up to the alignment."""
        return [align_up(buffer.size, self.alignment) for buffer in self.buffers]

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """For each buffer, the others that are live when it is."""
        neighbours: list[list[int]] = [[] for _ in self.buffers]
        # A sweep over the first steps meets every pair that is live together exactly once.
        live: list[int] = []
        for i in sorted(range(len(self.buffers)), key=lambda i: (self.buffers[i].first, i)):
            live = [j for j in live if self.buffers[j].last >= self.buffers[i].first]
            for j in live:
                neighbours[i].append(j)
                neighbours[j].append(i)
            live.append(i)
        return neighbours

    @cached_property
    def bound(self) -> tuple[int, int]:
        """Greatest sum of live bytes over the steps, and the first step that has it."""
        changes: dict[int, int] = {}
        for buffer, size in zip(self.buffers, self.sizes, strict=True):
            changes[buffer.first] = changes.get(buffer.first, 0) + size
            changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - size
        steps = sorted(changes)
        live = list(accumulate(changes[step] for step in steps))
        most = max(live, default=0)
        return (most, steps[live.index(most)]) if steps else (0, 0)

    def peak(self, offsets: list[int]) -> int:
        """End of the highest byte that any buffer has at these offsets."""
        return max((at + size for at, size in zip(offsets, self.sizes, strict=True)), default=0)


@dataclass(frozen=True)
class Allocation:
    """The solution of a problem: ``offsets[i]`` is the offset of the i-th buffer, in bytes."""

    offsets: tuple[int, ...]
    peak: int
    """Bytes from 0 to the end of the highest buffer."""
    bound: int
    """Greatest sum of live bytes at one step: no allocation needs less."""
    busiest: int
    """The first step at which ``bound`` bytes are live."""
    heuristic: str
    """Name of the method that found the offsets."""
    optimal: bool
    """True if it is known that no allocation needs less."""
    nodes: int = 0
    """Placements that the exact search tried."""

    def misfit(self, capacity: int | None) -> str | None:
        """The reason why the buffers do not lie within a capacity; None if they do."""
        if capacity is None or self.peak <= capacity:
            return None
        if self.bound > capacity:
            return f"{self.bound} bytes are live at step {self.busiest}, {capacity} are there"
        known = "the least that any allocation takes" if self.optimal else "the best that was found"
        return f"{self.peak} bytes are {known}, {capacity} are there"


def lowest_gap(taken: list[tuple[int, int]], size: int, start: int = 0) -> int:
    """First fit: the lowest offset from ``start`` on at which ``size`` bytes meet no range."""
    for begin, end in sorted(taken):
        if start + size <= begin:
            break
        start = max(start, end)
    return start


def tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    """Best fit: the offset of the smallest gap between ranges that holds ``size`` bytes.

    Of gaps alike the lowest; above all ranges if no gap is large enough.
    """
    ends = list(accumulate((end for _, end in sorted(taken)), max, initial=0))
    gaps = [(begin - end, end) for end, (begin, _) in zip(ends, sorted(taken), strict=False)]
    fitting = [gap for gap in gaps if gap[0] >= size]
    return min(fitting)[1] if fitting else ends[-1]
