"""The core as data: parallelism, banks, what its engines can do, and its figures for timing.

Sizes are those of AMD's DPUCZDX8G (PG338; the target factory of Vitis AI), whose B1152 and B4096
are the cores of DNNVM's ZU2 and ZU9. Bandwidths, queue depths and latencies are not published:
they are assumptions, marked so below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from tilewright.errors import refuse

DEPTH = 2048
"""Rows of every bank; addresses are modulo this, so that buffers of rows may be rings."""

Kind = Literal["map", "weights", "depthwise", "bias"]


@dataclass(frozen=True)
class BankGroup:
    """Banks of one kind with successive numbers: ``first`` to ``first + count - 1``."""

    name: str
    kind: Kind
    first: int
    count: int


@dataclass(frozen=True)
class Core:
    """The parameters of one CNN core.

    ``isa`` is the revision of the instruction set: 0 has POOL and DWCONV units, 1 an ALU for both.
    """

    name: str
    rows: int
    """Rows of a feature map that are computed at once (pp), and banks of a group."""
    channels: int
    """Input channels, and output channels, that are computed at once (icp = ocp); bytes of a row
    of a bank."""
    isa: Literal[0, 1] = 1
    groups: int = 2
    """Groups of banks for feature maps."""
    misc_rows: int = 2
    """Rows that pools, depthwise convolutions and the ALU compute at once."""
    elementwise_rows: int = 2
    clock_hz: float = 281e6
    memory_bytes_per_second: float = 19.2e9
    """Bandwidth of main memory. Assumed."""
    bytes_per_cycle: float = 32.0
    """Bytes that two data ports of 128 bits carry. Assumed, as are the following."""
    latency: int = 40
    """Cycles from the start of a LOAD or SAVE to its first byte."""
    in_flight: int = 4
    """LOADs, or SAVEs, whose latencies overlap."""
    queue: int = 16
    """The most instructions that wait or run in an engine at a time."""
    issue_cycles: int = 1
    """Cycles to dispatch an instruction."""

    @property
    def macs(self) -> int:
        """The number of products per cycle."""
        return self.rows * self.channels * self.channels

    @cached_property
    def bank_groups(self) -> tuple[BankGroup, ...]:
        """All banks, by number."""
        maps = tuple(
            BankGroup(f"vb{i}", "map", i * self.rows, self.rows) for i in range(self.groups)
        )
        first = self.groups * self.rows
        return (
            *maps,
            BankGroup("weight", "weights", first, self.channels),
            BankGroup("depthwise", "depthwise", first + self.channels, 1),
            BankGroup("bias", "bias", first + self.channels + 1, 1),
        )

    @property
    def banks(self) -> int:
        """The number of banks in all groups."""
        last = self.bank_groups[-1]
        return last.first + last.count

    def group(self, name: str) -> BankGroup:
        """A group by name."""
        return next(group for group in self.bank_groups if group.name == name)

    @cached_property
    def group_of_bank(self) -> tuple[BankGroup, ...]:
        """Group of every bank."""
        return tuple(group for group in self.bank_groups for _ in range(group.count))

    @property
    def group_bytes(self) -> int:
        """Bytes of one group for feature maps."""
        return self.rows * self.channels * DEPTH


def _standard(name: str, rows: int, channels: int) -> Core:
    return Core(f"dpu-{name}", rows, channels, misc_rows=rows // 2, elementwise_rows=rows // 2)


_STANDARD = tuple(
    _standard(name, rows, channels)
    for name, rows, channels in (
        ("b512", 4, 8),
        ("b800", 4, 10),
        ("b1024", 8, 8),
        ("b1152", 4, 12),
        ("b1600", 8, 10),
        ("b2304", 8, 12),
        ("b3136", 8, 14),
        ("b4096", 8, 16),
    )
)

ISA0 = Core("dpu-b4096-isa0", 8, 16, isa=0, misc_rows=4, elementwise_rows=1)
"""DPUCZDX8G_ISA0_B4096_MAX_BG2: the older instruction set, two groups."""

ZU2 = replace(
    _STANDARD[3], name="zu2", elementwise_rows=1, clock_hz=330e6, memory_bytes_per_second=3.0e9
)
"""DNNVM's small device: one B1152, 380 GOP/s. Its bandwidth follows from the paper's traffic and
times of two layers (2.89 to 3.16 GB/s)."""

ZU9 = replace(
    _STANDARD[7], name="zu9", elementwise_rows=1, clock_hz=330e6, memory_bytes_per_second=8.0e9
)
"""One of the three B4096 of DNNVM's large device, with all of its bandwidth."""

CORES = {core.name: core for core in (*_STANDARD, ISA0, ZU2, ZU9)}


def core_named(name: str) -> Core:
    """A core by name; refuses (``target-unknown``) another."""
    if name not in CORES:
        raise refuse("target-unknown", f"there is no core {name[:40]!r}", help=", ".join(CORES))
    return CORES[name]
