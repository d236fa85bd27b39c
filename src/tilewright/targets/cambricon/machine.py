"""Cambricon (ACC-C) as data: what is published of it, and what we chose.

Published (Liu et al., ISCA 2016, and tables 4.5 and 5.3 of the thesis): 32 lanes in the vector unit
and 32 x 32 multipliers in the matrix unit, vector and matrix scratchpads of 64 and 768 KB, 16-bit
fixed point, 1 GHz, 128 GB/s and 100 ns to main memory, a memory queue of depth 2, a DMA for each
scratchpad. The rest is ours: see README.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.machine import Engine, Machine, Memory, Move, Primitive, Storage

BANDWIDTH, LATENCY = 128.0, 100
"""Of main memory: bytes a cycle (128 GB/s at 1 GHz), and cycles (100 ns)."""

QUEUE = 2
"""Instructions that wait in the memory queue."""

REFILL = 4
"""Cycles that a branch costs beside its own where it was not foreseen: fetch to register read."""

TABLES, TABLE_ELEMENTS = 16, 512
"""Tables of the transcendental functions (the first is built in), and the 16-bit places of each."""


@dataclass(frozen=True)
class Configuration:
    """A row of the thesis' table 5.3."""

    name: str
    """The target's name."""
    lanes: int
    """Elements that the vector unit, and rows and columns that the matrix unit take in a cycle."""
    vsm: int
    """Bytes of the vector scratchpad."""
    msm: int
    """Bytes of the matrix scratchpad."""


ORIGINAL = Configuration("cambricon", lanes=32, vsm=64 << 10, msm=768 << 10)
SMALL = Configuration("cambricon-s", lanes=16, vsm=16 << 10, msm=32 << 10)
MEDIUM = Configuration("cambricon-m", lanes=8, vsm=128 << 10, msm=128 << 10)
CONFIGURATIONS = (ORIGINAL, SMALL, MEDIUM)
"""ACC-C, ACC-C-S and ACC-C-M, as printed: the medium one has fewer lanes than the small one."""

EPILOGUE = (("add",), ("relu", "clip", "leaky_relu"), ("requantise",))
VSM, MSM = Storage(memory="vsm"), Storage(memory="msm")


def machine(size: Configuration = ORIGINAL) -> Machine:
    """ACC-C in one of its sizes; make other variants with ``with_values``."""
    lanes = size.lanes

    def move(name: str, source: str, target: str, engine: str) -> Move:
        return Move(
            name=name,
            source=source,
            target=target,
            engine=engine,
            bytes_per_cycle=BANDWIDTH,
            latency=LATENCY,
        )

    return Machine(
        name=size.name,
        description=f"Cambricon: {lanes} vector lanes, {lanes} x {lanes} multipliers for matrices, "
        "16-bit fixed point, 1 GHz",
        clock_hz=1e9,
        memories=(
            Memory(name="dram", bytes_per_cycle=BANDWIDTH),
            Memory(name="vsm", bytes=size.vsm, banks=4, granule=8),
            Memory(name="msm", bytes=size.msm, banks=4, granule=8),
            Memory(name="tables", bytes=TABLES * TABLE_ELEMENTS * 2, granule=TABLE_ELEMENTS * 2),
        ),
        moves=(
            move("vload", "dram", "vsm", "vector_dma"),
            move("vstore", "vsm", "dram", "vector_dma"),
            move("mload", "dram", "msm", "matrix_dma"),
            move("mstore", "msm", "dram", "matrix_dma"),
            move("load_table", "dram", "tables", "vector_dma"),
        ),
        engines=tuple(
            Engine(name=name, queue=QUEUE)
            for name in ("vector_dma", "matrix_dma", "vector", "matrix")
        ),
        primitives=_primitives(lanes),
        element="fixed16",
        accumulator="fixed32",
        instruction_bytes=8,
        layouts={"activation": "NHWC", "weight": "OHWI"},
    )


def _primitives(lanes: int) -> tuple[Primitive, ...]:
    vector = {"input": VSM, "residual": VSM, "output": VSM}
    return (
        Primitive(
            name="conv",
            operations=("conv", "matmul"),
            engine="matrix",
            operands={"weight": MSM, "bias": VSM, **vector},
            epilogue=EPILOGUE,
            # A product of the kernel's row with the pixels that it covers, for each point.
            cycles=f"n*g*b0*b1*m*oh*ow*kh*ceil(co/{lanes})*ceil(kw*ci/{lanes})",
            peak=f"n*g*b0*b1*m*oh*ow*kh*kw*co*ci/{lanes * lanes}",
            multiples={"co": lanes, "ci": lanes},
        ),
        Primitive(
            name="pool",
            operations=("max_pool",),
            engine="vector",
            operands=vector,
            epilogue=EPILOGUE,
            cycles=f"n*ceil(c/{lanes})*oh*ow*kh*kw",
            peak=f"n*c*oh*ow*kh*kw/{lanes}",
            multiples={"c": lanes},
        ),
        Primitive(
            name="vector",
            operations=("add", "sub", "mul", "max", "min", "relu", "requantise"),
            engine="vector",
            operands={"weight": VSM, **vector},
            epilogue=EPILOGUE,
            cycles=f"ceil(d0*d1*d2*d3*d4*d5/{lanes})",
            peak=f"d0*d1*d2*d3*d4*d5/{lanes}",
            multiples={},
        ),
    )


MACHINE = machine()
"""ACC-C as published."""


def lanes_of(machine: Machine) -> int:
    """Elements that a machine's vector unit takes in a cycle."""
    return machine.primitive("conv").multiples["co"]


def queue_of(machine: Machine) -> int:
    """Instructions that wait in a machine's memory queue."""
    return machine.engine("matrix").queue
