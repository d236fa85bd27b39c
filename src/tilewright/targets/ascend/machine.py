"""DaVinci cores as data: Ascend 910 and 310, and the cube core of 910B1.

Comments say where each rate is from:

=== ======================================================
V   the vendor's text or code (asc-devkit, AscendNPU-IR)
M   published measurements
D   derived by arithmetic from such figures
S   secondary sources
A   assumed
=== ======================================================

The path rates of the 910 are not public: they are assumed to be the 310's. The memories have the
names of AscendNPU-IR's address spaces: gm, cbuf (L1), ca (L0A), cb (L0B), cc (L0C), ub; engines
those of its pipes. 910B1 is described by its cube core alone, whose results leave by the pipe FIX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.machine import (
    Engine,
    Machine,
    Memory,
    Move,
    Synchronisation,
)

BLOCK = 32
"""Bytes of a block: what copies, vector operations and their strides count in."""

FRACTAL = 512
"""Bytes of a block of 16 x 16 half-precision elements: what loads into L0A and L0B count in."""

CUBE = 16
"""Side of the blocks that the cube multiplies, in half precision; 32 along sums of int8."""

REPEAT_BLOCKS = 8
"""Blocks of one repeat of a vector operation."""

MAX_REPEAT = 255
"""Repeats of one instruction."""

MAX_BURSTS = 4095
"""Bursts of one copy (nBurst)."""

MAX_FIELD = 65_535
"""Largest length of a burst, gap between bursts, or stride of a load."""

MAX_MAD = 4095
"""Largest m, k or n of one ``mad``."""

MAX_JUMP = 127
"""Stride in fractals from one of img2col's to the next."""

MAX_STRIDE = 63
"""Largest stride of img2col's window."""

MAX_PAD = 127
"""Largest padding of an image; the field holds 255, but the word's sign is left alone."""


MOST_EVENTS = 8
"""Event ids that ``set_flag`` can name on any core."""


@dataclass(frozen=True)
class DaVinci:
    """One kind of core; sizes in bytes, rates in bytes per cycle, times in cycles."""

    name: str
    description: str
    cores: int
    clock_hz: float
    l1: int
    l0a: int
    l0b: int
    l0c: int
    ub: int
    """0 for a core without a vector unit."""
    l2: int
    """Bytes of the cache in front of main memory that all cores share."""
    events: int
    """Event ids of each ordered pair of pipes."""
    paths: Mapping[tuple[str, str], float]
    """Source and target memory -> bytes per cycle."""
    mad_head: float
    """Cycles of a ``mad`` before its first block; hidden where the next one is queued."""
    queue: float
    """Commands that wait in a pipe."""
    latency: float
    """Cycles from the start of a transfer of main memory to its first byte."""
    barrier_blocks: float
    """A ``mad`` into sums of fewer blocks needs a barrier after the one before on these sums."""
    memory: float = 0
    """Bytes per cycle of main memory behind L2, for all cores; 0 where each has its own share."""
    hit: float = 0
    """Bytes that one core loads of L2 in a cycle."""
    load_head: float = 0
    """Cycles of each command of MTE1 before its first byte."""
    burst: float = 0
    """Least cycles of each burst of a transfer from main memory, however short it is."""
    divides: bool = True
    """True if the core has ``vdiv``."""


_PATHS_310 = {
    ("gm", "cbuf"): 67,  # V: DDR read, L2 128
    ("gm", "ub"): 67,  # V: DDR read, L2 128
    ("cbuf", "ca"): 256,  # V: instruction tables of 910B; the chip's ini file says 512
    ("cbuf", "cb"): 128,  # V: instruction tables of 910B; the chip's ini file says 256
    ("cbuf", "ub"): 128,  # V: ini
    ("ub", "cbuf"): 128,  # V: ini; an older one says 512
    ("cc", "ub"): 256,  # V: ini; older ones say 128 or 512
    ("ub", "gm"): 64,  # V: ini
}

_PATHS_910 = {
    **_PATHS_310,  # A: not public for the 910
    ("gm", "cbuf"): 64,  # A: between 37.5 (1.2 TB/s over 32 cores) and the 310's L2, 128
    ("gm", "ub"): 64,  # A: between 37.5 (1.2 TB/s over 32 cores) and the 310's L2, 128
}

ASCEND_910 = DaVinci(
    name="ascend910",
    description="the 32 DaVinci cores of an Ascend 910 (dav-c100)",
    cores=32,
    clock_hz=1e9,  # D: 256 TFLOPS / 32 cores / 8,192 = 977 MHz
    l1=1 << 20,
    l0a=64 << 10,
    l0b=64 << 10,
    l0c=256 << 10,
    ub=256 << 10,
    l2=32 << 20,
    events=4,
    paths=_PATHS_910,
    mad_head=60,  # A: measured on 910B1: 61 and 63
    queue=16,  # A: no public figure
    latency=100,  # A: no public figure
    barrier_blocks=10,  # A: 910B's manual
    memory=1200,  # S: 1.2 TB/s at 1 GHz
    hit=128,  # A: not public for the 910; as the 310
)

ASCEND_310 = DaVinci(
    name="ascend310",
    description="the 2 DaVinci cores of an Ascend 310 (dav-m100)",
    cores=2,
    clock_hz=680e6,  # V: conflicts with 8 TFLOPS, which need 488 MHz
    l1=1 << 20,
    l0a=64 << 10,
    l0b=64 << 10,
    l0c=256 << 10,
    ub=248 << 10,
    l2=8 << 20,
    events=4,
    paths=_PATHS_310,
    mad_head=60,  # A: measured on 910B1: 61 and 63
    queue=16,  # A: no public figure
    latency=100,  # A: no public figure
    barrier_blocks=10,  # A: 910B's manual
    memory=75,  # S: 51.2 GB/s of LPDDR4X at 680 MHz
    hit=128,  # V: ini
    divides=False,
)

ASCEND_910B1 = DaVinci(
    name="ascend910b1",
    description="one of the 24 cube cores of an Ascend 910B1 (dav-c220)",
    cores=24,
    clock_hz=1.85e9,  # V: asc-devkit
    l1=512 << 10,
    l0a=64 << 10,
    l0b=64 << 10,
    l0c=128 << 10,
    ub=0,
    l2=192 << 20,
    events=8,
    paths={
        ("gm", "cbuf"): 110,  # V: L2; DDR 32
        ("cbuf", "ca"): 256,  # V: instruction tables; the ini file says 512
        ("cbuf", "cb"): 128,  # V: instruction tables; the ini file says 256
        ("cc", "gm"): 64,  # V: L2 86
    },
    mad_head=61,  # M: 64 x 64 x 64 without overlap: 125 cycles a mad
    queue=32,  # V: of MTE1; assumed for the others
    latency=40,  # M: ladder of products, cases 0 and 1: cycles of a transfer beside bursts
    barrier_blocks=10,  # V: manual
    load_head=23.5,  # M: ladder of products, cases 0 and 1: 47 a step beside the rates
    burst=3.38,  # M: ladder of products, cases 0 and 1: rows of 128 bytes
)

CORES = (ASCEND_910, ASCEND_310, ASCEND_910B1)
"""The cores that are described here."""

PIPES = {
    ("gm", "cbuf"): "mte2",
    ("gm", "ub"): "mte2",
    ("cbuf", "ca"): "mte1",
    ("cbuf", "cb"): "mte1",
    ("cbuf", "ub"): "mte1",
    ("cc", "ub"): "v",
    ("ub", "gm"): "mte3",
    ("ub", "cbuf"): "mte3",
    ("cc", "gm"): "fix",
}
"""The pipe of each path."""


def machine_of(core: DaVinci) -> Machine:
    """The memories, paths and pipes of one core; elements of 2 bytes whose sums have 4."""
    sizes = {"cbuf": core.l1, "ca": core.l0a, "cb": core.l0b, "cc": core.l0c, "ub": core.ub}
    granules = {"cbuf": BLOCK, "ca": FRACTAL, "cb": FRACTAL, "cc": 2 * FRACTAL, "ub": BLOCK}
    memories = (
        Memory(name="gm", bytes_per_cycle=core.paths["gm", "cbuf"]),
        *(
            Memory(name=name, bytes=size, granule=granules[name])
            for name, size in sizes.items()
            if size
        ),
    )
    return Machine(
        name=core.name,
        description=core.description,
        clock_hz=core.clock_hz,
        memories=memories,
        moves=tuple(_move(core, source, target) for source, target in core.paths),
        engines=tuple(
            Engine(name=name, queue=int(core.queue))
            for name in dict.fromkeys(("m", "v", *(PIPES[path] for path in core.paths)))
            if name != "v" or core.ub
        ),
        primitives=(),
        main="gm",
        element="fixed16",
        accumulator="fixed32",
        synchronisation=Synchronisation(style="flags", ids=core.events, stalls=False),
    )


def _move(core: DaVinci, source: str, target: str) -> Move:
    slow = "gm" in (source, target)
    return Move(
        name=f"{source}-to-{target}",
        source=source,
        target=target,
        engine=PIPES[source, target],
        bytes_per_cycle=core.paths[source, target],
        latency=int(core.latency) if slow else 0,
        in_flight=4 if slow else 1,
        transaction=BLOCK,
    )
