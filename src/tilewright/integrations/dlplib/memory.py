"""Device memory: allocations with addresses, copies both ways, every access checked."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.ir.types import Array
from tilewright.memory import ALIGNMENT, align_up

FIRST = 1 << 12
"""The first address: 0 is never one."""

LAST = 1 << 62
"""Addresses are not given twice, so that use after free is always noticed; here they end."""

REMEMBERED = 1 << 16
"""Freed allocations that messages still call so; older ones are just not there."""

DEFAULT_CAPACITY = 1 << 32
"""Bytes of a device."""


class DeviceMemory:
    """The memory of one device. A new allocation holds zeros.

    An address may point into an allocation; a range must lie in one. Every misuse is refused
    with ``dlp-memory``, too large a wish with ``dlp-capacity``.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self.capacity = capacity
        self.used = 0
        self._next = FIRST
        self._starts: list[int] = []
        self._blocks: dict[int, NDArray[np.uint8]] = {}
        self._freed: dict[int, int] = {}

    def malloc(self, size: int) -> int:
        """The address of ``size`` new bytes."""
        if type(size) is not int or size < 1:
            raise refuse("dlp-parameter", f"{size} bytes cannot be allocated")
        rounded = align_up(size)
        if self.used + rounded > self.capacity or self._next + rounded > LAST:
            raise refuse(
                "dlp-capacity", f"{size} bytes do not fit: {self.used} of {self.capacity} are used",
                help="free what is not needed",
            )  # fmt: skip
        address = self._next
        self._blocks[address] = np.zeros(size, np.uint8)
        self._starts.append(address)
        # A gap between allocations: one past the end is never the next one.
        self._next += rounded + ALIGNMENT
        self.used += rounded
        return address

    def free(self, address: int) -> None:
        """Give an allocation back; its address must be the one that ``malloc`` gave."""
        _need_integer(address)
        block = self._blocks.pop(address, None)
        if block is None:
            if address in self._freed:
                raise refuse("dlp-memory", "it has been freed already", _named(address))
            raise refuse("dlp-memory", "no allocation begins there", _named(address))
        self._starts.remove(address)
        self._freed[address] = block.size
        if len(self._freed) > REMEMBERED:
            del self._freed[next(iter(self._freed))]
        self.used -= align_up(block.size)

    def view(self, address: int, size: int) -> NDArray[np.uint8]:
        """``size`` bytes from ``address`` on, shared with the device."""
        _need_integer(address)
        if type(size) is not int or size < 0:
            raise refuse("dlp-parameter", f"{size} is no number of bytes")
        index = bisect_right(self._starts, address) - 1
        start = self._starts[index] if index >= 0 else -1
        offset = address - start
        block = self._blocks.get(start)
        if block is None or offset >= block.size + ALIGNMENT or (offset >= block.size and size):
            if any(a <= address < a + n for a, n in self._freed.items()):
                raise refuse("dlp-memory", "it is used after it was freed", _named(address))
            raise refuse("dlp-memory", "nothing is allocated there", _named(address))
        if offset + size > block.size:
            raise refuse(
                "dlp-memory", f"{size} bytes reach {offset + size - block.size} bytes past the end "
                f"of an allocation of {block.size}", _named(address),
            )  # fmt: skip
        return block[offset : offset + size]

    def write(self, address: int, data: bytes | Array) -> None:
        """Copy from the host: bytes, or an array's elements in row-major order."""
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).tobytes()
        self.view(address, len(data))[:] = np.frombuffer(data, np.uint8)

    def read(self, address: int, size: int) -> bytes:
        """Copy to the host."""
        return self.view(address, size).tobytes()

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy on the device; the ranges must not overlap."""
        to, origin = self.view(target, size), self.view(source, size)
        if abs(target - source) < size:
            raise refuse("dlp-memory", f"the {size} bytes overlap their source", _named(target))
        to[:] = origin


def _need_integer(address: object) -> None:
    if type(address) is not int:
        raise refuse("dlp-parameter", f"{address!r} is no address")


def _named(address: int) -> str:
    return f"address {address:#x}"
