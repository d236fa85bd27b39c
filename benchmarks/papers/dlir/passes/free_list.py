"""DLIR's manager of an on-chip memory: best fit, release, and coalescing (section 5.2.5.1).

A table lists the free pieces of a memory by address. ``allocate`` takes the piece whose size is
nearest to what is asked for and puts what is left of it back; ``release`` joins a piece with free
neighbours on both sides.

    memory = FreeList(8192)
    a = memory.allocate(1000)
    b = memory.allocate(3000)
    memory.release(a)
"""

from __future__ import annotations

from tilewright.memory.problem import Problem


class FreeList:
    """One memory of so many bytes (None: without a limit)."""

    def __init__(self, size: int | None) -> None:
        self._free = [(0, 1 << 62 if size is None else size)]
        """Start and end of the free pieces, ascending."""
        self._taken: dict[int, int] = {}
        self.peak = 0
        """End of the highest byte ever taken."""

    @property
    def free(self) -> tuple[tuple[int, int], ...]:
        """Start and end of the free pieces, ascending; no two of them touch."""
        return tuple(self._free)

    def allocate(self, size: int) -> int | None:
        """The address of ``size`` bytes, at least one; None if no piece is large enough.

        Raises ValueError for fewer: two buffers without bytes would have one address, which
        ``release`` could not tell apart.
        """
        if size < 1:
            raise ValueError(f"{size} bytes cannot be allocated")
        fitting = [piece for piece in self._free if piece[1] - piece[0] >= size]
        if not fitting:
            return None
        # Of pieces alike the lowest, so that the result does not depend on anything else.
        start, end = min(fitting, key=lambda piece: (piece[1] - piece[0], piece[0]))
        at = self._free.index((start, end))
        self._free[at : at + 1] = [(start + size, end)] if start + size < end else []
        self._taken[start] = size
        self.peak = max(self.peak, start + size)
        return start

    def release(self, address: int) -> None:
        """Give back what ``allocate`` returned; raises KeyError for any other address."""
        start, end = address, address + self._taken.pop(address)
        for piece in [p for p in self._free if start in p or end in p]:
            self._free.remove(piece)
            start, end = min(start, piece[0]), max(end, piece[1])
        self._free.append((start, end))
        self._free.sort()


def place_as_they_come(problem: Problem) -> list[int]:
    """Offsets when buffers are allocated as they come to life and released as they die.

    Buffers that come to life at the same step are allocated in the order of the problem.
    """
    memory = FreeList(None)
    buffers, offsets, live = problem.buffers, [0] * len(problem.buffers), list[int]()
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
        for other in [j for j in live if buffers[j].last < buffers[i].first]:
            memory.release(offsets[other])
            live.remove(other)
        if not problem.sizes[i]:
            continue  # no bytes: at 0, and nothing to release
        address = memory.allocate(problem.sizes[i])
        assert address is not None  # there is no limit
        offsets[i] = address
        live.append(i)
    return offsets
