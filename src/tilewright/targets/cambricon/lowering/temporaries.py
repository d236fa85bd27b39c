"""The part of VSM that no buffer uses: sums, zeros, replicated biases, gathered windows."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.targets.cambricon.lowering.emitter import Emitter

ALIGNMENT = 8
"""Bytes to which temporaries are aligned: the largest element."""


@dataclass
class Temporaries:
    """Bytes from ``start`` on, given out once each in a kernel."""

    start: int
    size: int
    where: str
    used: int = 0
    others: int = 0
    """The address of the longest part in front of them that no buffer uses, either."""
    beside: int = 0
    """The number of bytes of that part."""

    def beside_them(self, size: int) -> int:
        """The address of ``size`` bytes in that part."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        assert size <= self.beside
        address = self.others
        self.others += size
        self.beside -= size
        return address

    @property
    def left(self) -> int:
        """Bytes that are not given out."""
        return self.size - self.used

    def take(self, size: int) -> int:
        """The address of ``size`` bytes; refuses (``lower-temporaries``) more than there are."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        if size > self.left:
            raise refuse(
                "lower-temporaries",
                f"the kernel's temporaries take {self.used + size} bytes of VSM, "
                f"{self.size} are kept for them",
                self.where,
            )
        address = self.start + self.used
        self.used += size
        return address


def clear(e: Emitter, address: int, count: int) -> None:
    """Zeros: numbers less themselves, made first so that no byte is read that nothing wrote."""
    at, n = e.reg(address), e.reg(count)
    e.emit("RV", at, n)
    e.emit("VSV", at, n, at, at)


def fill(e: Emitter, address: int, count: int, number: int) -> None:
    """A number in every element."""
    clear(e, address, count)
    at = e.reg(address)
    e.emit("VAS", at, e.reg(count), at, e.reg(number))
