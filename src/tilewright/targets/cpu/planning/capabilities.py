"""The records of the cpu target's machines alone, as planning reads them: data without code.

``targets/cpu/capabilities.py`` joins it to the planners.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.machine.dims import DIMS, dims_of
from tilewright.machine.model import MAX_VALUE
from tilewright.machine.records import Finding, MachineRecord, PrimitiveRecord
from tilewright.targets.cpu.planning.costs import CacheCosts


class CacheFacts(MachineRecord):
    """The costs and capacity of caches, and the required exactness of products."""

    cache_costs: CacheCosts = CacheCosts()
    weights_kept: int = Field(default=0, ge=0, le=MAX_VALUE)
    """Bytes of a kernel's weights that the last cache keeps from one run to the next: of networks
    whose weights all fit there, and of one kernel that is run again and again."""
    pieces: Literal["windows", "all"] = "windows"
    """Products that matrix tiles may compute in two pieces of bfloat16, which are nearly a float32:
    convolutions for which Winograd's method stands ready, whose largest errors are as large, or
    every convolution and matrix product. Three pieces are the float32, and always allowed."""


class CpuPrimitive(PrimitiveRecord):
    """The facts about a generated C function: its scratch, its cycles and what may follow it."""

    family: ClassVar[str] = "cpu"

    scratch: str = "0"
    """Expression of the tile's dims: elements of the operand of role ``scratch`` that it uses."""
    fit: tuple[tuple[float, float, float, float], ...] = ()
    """Measured (vectors, points, a, b) of register tiles: K steps of the reduction take a K + b
    cycles (swATOP, Eq. 2, for each micro-kernel). Empty: they follow from ``peak``."""
    block_cycles: float = Field(default=0, ge=0, le=MAX_VALUE)
    """Cycles in which matrix tiles multiply 16 points with 16 output channels, over 32 inputs, in
    as many pieces of bfloat16 as that takes (pieces.py); 0: it has vectors alone."""
    dot: int = Field(default=1, gt=0, le=MAX_VALUE)
    """Products along dim ``ci`` that a lane adds up in one step (4 bytes in a 32-bit lane)."""
    temporaries: int = Field(default=0, ge=0, le=MAX_VALUE)
    """Vector registers that a step needs beside accumulators, weights and a broadcast."""
    pools: tuple[str, ...] = ()
    """Pooling operations (``max_pool``), of which one may stand in the chain where its windows lie
    within the primitive's tiles."""

    def weights_in_words(self) -> bool:
        """Return True if a lane takes several weights at once."""
        return self.dot > 1

    def findings(self, primitive: Primitive, dims: frozenset[str]) -> Iterator[Finding]:
        """The problems of a record: pools that do not exist, and an invalid expression of the
        scratch."""
        del dims
        known = (*primitive.operations, *self.pools)
        for name in self.pools:
            if name not in DIMS:
                yield "pools", f"there is no operation {name[:80]!r}", ""
        try:
            expression = parse_expression(self.scratch)
            if expression.evaluate({}) < 0:
                yield "scratch", "is negative for a tile of one element", ""
        except TilewrightError as error:
            yield "scratch", error.problems[0].reason, ""
        else:
            for name in expression.names:
                if name not in dims_of(known):
                    yield "scratch", f"no operation of the primitive has a dim {name!r}", ""


_PLAIN = CpuPrimitive()


def own_of(primitive: Primitive) -> CpuPrimitive:
    """The record of a primitive."""
    return primitive.own if isinstance(primitive.own, CpuPrimitive) else _PLAIN


def facts_of(machine: Machine) -> CacheFacts:
    """The record of a machine."""
    return machine.own if isinstance(machine.own, CacheFacts) else CacheFacts()
