"""Records of DaVinci's machines: L2, and kernels that one core computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from tilewright.graph.passes.own import OwnPasses
from tilewright.machine import Machine, Memory
from tilewright.machine.model import MAX_VALUE, MIN_RATE
from tilewright.machine.records import (
    Finding,
    OperandRecord,
)
from tilewright.planning.domain import Kernel
from tilewright.planning.own import CachedMemory, DividesUnlike, FormsKernels, SharedCache
from tilewright.targets.ascend.attention import as_chain
from tilewright.targets.ascend.elements import DIMS, as_elements, as_folds, as_rows
from tilewright.targets.ascend.moves import as_moves


class AscendMachine(OwnPasses, FormsKernels):
    """The record of the machine: how it plans kernels, and what they may multiply."""

    family: ClassVar[str] = "ascend"
    formed_dims: ClassVar[frozenset[str]] = DIMS

    def formed(self, kernel: Kernel, machine: Machine) -> Kernel:
        """Attention as a chain, others over the dims of elements.py and moves.py."""
        return as_moves(as_folds(as_rows(as_elements(as_chain(kernel)))))

    def multiplies_computed_integers(self) -> bool:
        """No: on the way to L0B only blocks of 16-bit elements are transposed, so integers lie
        there as a constant can be stored."""
        return False


class AscendMemory(CachedMemory):
    """The record of main memory, with L2 in front of it."""

    family: ClassVar[str] = "ascend"

    cached: int = Field(default=0, ge=0, le=MAX_VALUE)
    """Bytes of L2, which hardware manages and all cores share."""
    hit_bytes_per_cycle: float | None = Field(default=None, ge=MIN_RATE, le=MAX_VALUE)
    """The bytes that one core loads from L2 in a cycle; None where there is no L2."""

    def shared_cache(self) -> SharedCache | None:
        """Return the L2 cache that all cores share, or None."""
        hit = self.hit_bytes_per_cycle
        return None if hit is None else SharedCache(self.cached, hit)

    def findings(self, memory: Memory, machine: Machine) -> Iterator[Finding]:
        """A cache without a rate, or of another memory, or of one without a rate."""
        if self.cached and not self.hit_bytes_per_cycle:
            yield "hit_bytes_per_cycle", "is needed of a cache", ""
        if self.hit_bytes_per_cycle and memory.name != machine.main:
            yield "hit_bytes_per_cycle", "is of the main memory alone", ""
        elif self.hit_bytes_per_cycle and memory.bytes_per_cycle is None:
            reason = "asks for bytes_per_cycle, which all cores share"
            yield "hit_bytes_per_cycle", reason, ""


class AscendPrimitive(DividesUnlike):
    """A kernel of the core."""

    family: ClassVar[str] = "ascend"

    alone: bool = False
    """True if one core computes it, where there are several, and the others wait."""

    def on_one_core(self) -> bool:
        """Return True if one core computes it alone (``alone``)."""
        return self.alone


class AscendOperand(OperandRecord):
    """The record of an operand of the cube."""

    family: ClassVar[str] = "ascend"

    apart: tuple[str, ...] = ()
    """Dims of a window of which img2col makes a matrix of its own for each index, with a row for
    each position."""

    def windows_apart(self) -> tuple[str, ...]:
        """The dims along which windows are computed apart."""
        return self.apart
