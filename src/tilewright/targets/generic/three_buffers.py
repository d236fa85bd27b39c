"""The common parts of accelerators of the DianNao family: three buffers, fixed point, a DMA.

NBin holds inputs, SB weights, NBout results; a memory of function tables stands beside them. Loads,
stores and computes run side by side. The buffers' sizes are those of a configuration; primitives
are the machine's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.machine import Engine, Fusion, Machine, Memory, Move, Primitive, Storage

ACTIVATIONS = ("relu", "clip", "leaky_relu")
"""Map operations that the pipeline applies to accumulators."""

EPILOGUE = (("add",), ACTIVATIONS, ("requantise",), ("table",))
"""Stages after the accumulation: the residual, an activation, back to 16 bits, a table."""

VECTOR = (*("add", "sub", "mul", "max", "min"), *("neg", "abs", "requantise"))
"""Functions of one or two operands that the vector unit computes beside the above."""

POINTS = "d0*d1*d2*d3*d4*d5"
"""Elements of a pointwise operation, softmax's outer dims included.

A dim that an operation does not have counts as 1 in expressions.
"""

TABLE_BYTES = 16384
"""Memory of the function tables (sigmoid, tanh, powers of LRN, exponential of softmax)."""

BANDWIDTH, LATENCY = 128.0, 100
"""Main memory: bytes per cycle (128 GB/s at 1 GHz), and cycles (100 ns)."""

NBIN, NBOUT, SB = (Storage(memory=name) for name in ("nbin", "nbout", "sb"))
MAPS = {"input": NBIN, "residual": NBOUT, "output": NBOUT}
BIAS = Storage(memory="sb", joined="weight")


def products(**multiples: int) -> dict[str, Storage]:
    """The operands of products, with weights in multiples of some dims."""
    weight = Storage(memory="sb", multiples=multiples)
    return {"input": NBIN, "weight": weight, "bias": BIAS, "residual": NBOUT, "output": NBOUT}


def primitive(
    name: str, *operations: str, operands: dict[str, Storage] = MAPS, **values: Any
) -> Primitive:
    """A primitive of the one engine that computes, with the epilogue of all unless said."""
    values = {"epilogue": EPILOGUE, **values}
    return Primitive(
        name=name, operations=operations or (name,), engine="compute", operands=operands, **values
    )


@dataclass(frozen=True)
class Configuration:
    """A row of the DLIR thesis' table 5.3: the sizes in which one machine is built."""

    name: str
    """The name of the target."""
    side: int
    """Channels, or rows and columns of a map, that the machine processes at once."""
    nbin: int
    """Bytes of the buffer NBin; then those of NBout and SB."""
    nbout: int
    sb: int


def vector_primitive(lanes: int) -> Primitive:
    """The unit that computes ``lanes`` elements of a map in a cycle."""
    return primitive(
        "vector",
        *(*VECTOR, *ACTIVATIONS, "table"),
        operands=MAPS | {"weight": NBIN},
        cycles=f"ceil({POINTS}/{lanes})",
        peak=f"{POINTS}/{lanes}",
    )


def softmax_primitive(lanes: int) -> Primitive:
    """Softmax on ``lanes`` elements at a time.

    The maximum, the exponential with its sum, and dividers that give one bit of the quotient a
    cycle: 18 cycles.
    """
    return primitive(
        "softmax",
        epilogue=(),
        cycles=f"{POINTS}*ceil(axis/{lanes})*18",
        peak=f"{POINTS}*axis*18/{lanes}",
        whole=("axis",),
    )


def accelerator(
    size: Configuration,
    description: str,
    primitives: tuple[Primitive, ...],
    *,
    granule: int,
    banks: int,
    layouts: dict[str, str],
) -> Machine:
    """The machine of a configuration; ``granule`` bytes are one access of a buffer.

    ``banks`` are SB's.
    """

    def move(source: str, target: str, engine: str) -> Move:
        return Move(
            name=f"{engine}_{target if engine == 'load' else source}",
            source=source,
            target=target,
            engine=engine,
            bytes_per_cycle=BANDWIDTH,
            latency=LATENCY,
            in_flight=1,
        )

    return Machine(
        name=size.name,
        description=description,
        clock_hz=1e9,
        memories=(
            Memory(name="dram", bytes_per_cycle=BANDWIDTH),
            Memory(name="nbin", bytes=size.nbin, granule=granule),
            Memory(name="nbout", bytes=size.nbout, granule=granule),
            Memory(name="sb", bytes=size.sb, banks=banks, granule=granule),
            Memory(name="tables", bytes=TABLE_BYTES, granule=granule),
        ),
        moves=(
            move("dram", "nbin", "load"),
            move("dram", "sb", "load"),
            move("dram", "nbout", "load"),
            move("dram", "tables", "load"),
            move("nbout", "dram", "store"),
        ),
        engines=(Engine(name="load"), Engine(name="store"), Engine(name="compute")),
        primitives=primitives,
        fusions=(Fusion(name="sum", query="conv|depthwise|product -> add"),),
        element="fixed16",
        accumulator="fixed32",
        instruction_bytes=128,
        layouts=layouts,
    )
