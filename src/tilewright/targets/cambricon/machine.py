"""Cambricon (ACC-C) as data: what is published of it, and what we chose.

Published (Liu et al., ISCA 2016, and tables 4.5 and 5.3 of the thesis): 32 lanes in the vector unit
and 32 x 32 multipliers in the matrix unit, vector and matrix scratchpads of 64 and 768 KB, 16-bit
fixed point, 1 GHz, 128 GB/s and 100 ns to main memory, a memory queue of depth 2, a DMA for each
scratchpad. The rest is ours: see README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tilewright.machine import Engine, Fusion, Machine, Memory, Move, Primitive, Storage
from tilewright.targets.cambricon.capabilities import (
    CambriconMachine,
    CambriconMove,
    CambriconOperand,
    CambriconPrimitive,
)

BANDWIDTH, LATENCY = 128.0, 100
"""Main memory: bytes per cycle (128 GB/s at 1 GHz), and cycles (100 ns)."""

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
    """The name of the target."""
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

SLIM = 4
"""Blocks of channels that a tile of ``slim_conv`` has at most."""

MOST = 1 << 24
"""The upper limit of an extent without a bound."""

TILE, ROW = 30, 8
"""Cycles in which the scalar instructions of a tile, and of a row of pixels, hold up its unit."""

RESERVED = Fraction(7, 64)
"""Part of VSM that is the compiler's: sums, zeros, gathered windows (lowering/). A convolution by
one block of channels at a time (``narrow_conv``), or few (``slim_conv``), keeps no more than these
need."""

SUM_BYTES = 14
"""Bytes of the reserved part for each output channel: two sums, a bias and a zero."""

MAXIMUM_BYTES, MEAN_BYTES = 2, 10
"""Reserved bytes per channel for pooling: a zero; and for means a sum and two divisors beside
it."""

MATRIX_MEAN_BYTES, SIDE = 8, 16
"""Reserved bytes per channel for means in the matrix scratchpad: a sum, a divisor and a zero; and
the longest side of their windows, each of whose pixels takes a one."""

COLUMNS_BYTES = 14
"""Reserved bytes per channel for pooling in the matrix scratchpad: a zero, and room for least
numbers and a one. That scratchpad has three times the part of VSM for it: for the columns of
windows, three times."""

LRN_BYTES = 19
"""Reserved bytes per channel for the gradient of LRN: squares, sums, two factors."""

EPILOGUE = (("add",), ("relu", "clip"), ("requantise",), ("table",))
MAPS = ("add", "sub", "mul", "max", "min", "relu", "clip", "requantise")
"""Maps of an instruction or two."""

POINTS = "d0*d1*d2*d3*d4*d5"
"""Elements of a map; a dim that an operation does not have counts as 1."""

BATCH = "b0*b1*b2*b3*b4*b5"
"""Matrices of a batched product."""

VSM, MSM = Storage(memory="vsm"), Storage(memory="msm")
BY_TILE, WAITS = CambriconOperand(by_tile=True), CambriconOperand(waits=("oh",))
ROW_MAJOR = "NCHW"
ROWS = Storage(memory="vsm", layout=ROW_MAJOR)
"""Rows of matrices in batches: their last axis is the innermost, as channels are in images."""
AXIS = Storage(memory="vsm", layout="any", along=("axis",))


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
            own=CambriconMove(linear=True),
        )

    return Machine(
        name=size.name,
        description=f"Cambricon: {lanes} vector lanes, {lanes} x {lanes} multipliers for matrices, "
        "16-bit fixed point, 1 GHz",
        clock_hz=1e9,
        memories=(
            Memory(name="dram", bytes_per_cycle=BANDWIDTH),
            Memory(
                name="vsm",
                bytes=size.vsm,
                banks=4,
                granule=8,
                reserved=int(size.vsm * RESERVED),
                resident=("results", "constants"),
            ),
            Memory(name="msm", bytes=size.msm, banks=4, granule=8, resident=("constants",)),
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
        own=CambriconMachine(),
        primitives=_primitives(lanes, int(size.vsm * RESERVED)),
        fusions=(Fusion(name="sum", query="conv|depthwise|product -> add"),),
        element="fixed16",
        accumulator="fixed32",
        instruction_bytes=8,
        layouts={"activation": "NHWC", "weight": "OHWI"},
    )


def _primitives(lanes: int, reserved: int) -> tuple[Primitive, ...]:
    operands = {"input": VSM, "residual": VSM, "output": VSM}
    product = operands | {"weight": Storage(memory="msm", own=BY_TILE), "bias": VSM}
    rows = {
        **dict.fromkeys(("input", "residual", "output", "bias"), ROWS),
        "weight": Storage(memory="msm", layout=ROW_MAJOR, own=BY_TILE),
    }
    row = f"max(kh*ceil(co/{lanes})*ceil(kw*ci/{lanes}), 3+2*kh)"
    four = f"max(kh*ceil(4*co/{lanes})*ceil((kw+3)*ci/{lanes}), 3+2*kh)"
    channels = max(reserved // SUM_BYTES // lanes * lanes, 1)
    limits = {"n": 1, "g": 1, "co": channels}
    plain: dict[str, Any] = {
        "operations": ("conv",),
        "engine": "matrix",
        "own": CambriconPrimitive(skip_padding=True, in_place="residual"),
        "operands": product,
        "epilogue": EPILOGUE,
        # A product of the kernel's row with the pixels that it covers, for each point; where
        # channels are few, one product for several neighbouring points.
        "cycles": f"n*g*oh*kh*ceil(ow*co/{lanes})*ceil(kw*ci/{lanes})",
        "peak": f"n*g*oh*ow*kh*kw*co*ci/{lanes * lanes}",
        "issue": f"{TILE}+n*g*oh*({ROW}+ow*min({row}, {four}/4))",
        "limits": limits,
        "multiples": {"co": lanes, "ci": lanes},
        "whole": ("kh", "kw"),
    }

    def conv(name: str, **facts: Any) -> Primitive:
        """A convolution, with the facts that differ from those of the plain one."""
        return Primitive(name=name, **(plain | facts))

    return (
        conv(
            "fc",
            # A convolution whose result is one point: rows of its kernel may be tiles, too.
            cycles=f"n*g*kh*ceil(co/{lanes})*ceil(kw*ci/{lanes})",
            issue=f"{TILE}+n*g*max(kh*ceil(co/{lanes})*ceil(kw*ci/{lanes}), 5+2*kh)",
            peak=f"n*g*kh*kw*co*ci/{lanes * lanes}",
            whole=("kw",),
            extents={"oh": (1, 1), "ow": (1, 1)},
        ),
        conv("conv"),
        conv(
            "wide_conv",
            # All channels of a pixel, so that it is stored in one piece: sums come part by part.
            cycles=f"n*g*oh*ow*kh*ceil(co/{lanes})*ceil(kw*ci/{lanes})",
            issue=f"{TILE}+n*g*oh*({ROW}+ow*{row})",
            limits={"n": 1},
            whole=("co", "ci", "kh", "kw"),
            extents={"g": (1, 1), "co": (channels + 1, MOST)},
        ),
        Primitive(
            name="matmul",
            operations=("matmul",),
            engine="matrix",
            own=CambriconPrimitive(in_place="residual"),
            operands=rows | {"input": ROWS.model_copy(update={"along": ("ci",)})},
            epilogue=EPILOGUE,
            cycles=f"n*m*{BATCH}*ceil(co/{lanes})*ceil(ci/{lanes})",
            peak=f"n*m*{BATCH}*co*ci/{lanes * lanes}",
            issue=f"{TILE}+n*m*{BATCH}*max(ceil(co/{lanes})*ceil(ci/{lanes}), 8)",
            limits={"b0": 1, "co": channels},
            multiples={"co": lanes, "ci": lanes},
        ),
        Primitive(
            name="outer",
            operations=("matmul",),
            engine="matrix",
            # The first operand transposed: all rows of a step of the reduction lie side by side.
            operands={
                "input": Storage(memory="vsm", along=("n", "m"), layout=ROW_MAJOR),
                "weight": Storage(memory="vsm", along=("co",), layout=ROW_MAJOR),
                "output": Storage(memory="msm", layout=ROW_MAJOR),
            },
            epilogue=(("requantise",),),
            cycles=f"{BATCH}*ci*ceil(n*m/{lanes})*ceil(co/{lanes})",
            peak=f"n*m*{BATCH}*co*ci/{lanes * lanes}",
            issue=f"{TILE}+8*ci",
            limits={"b0": 1},
            multiples={"co": lanes},
            sums=True,
        ),
        Primitive(
            name="depthwise",
            operations=("depthwise_conv",),
            engine="vector",
            own=CambriconPrimitive(skip_padding=True),
            operands=operands | {"weight": Storage(memory="vsm", own=BY_TILE), "bias": VSM},
            epilogue=EPILOGUE,
            # A product of the channels, of several pixels where windows lie side by side, for each
            # position of the kernel.
            cycles=f"n*oh*kh*kw*ceil(ow*c/{lanes})",
            peak=f"n*oh*ow*kh*kw*c/{lanes}",
            issue=f"{TILE}+n*oh*({ROW}+ow*kh*kw*max(ceil(c/{lanes}), 3))",
            limits={"n": 1, "c": channels},
            multiples={"c": lanes},
            whole=("kh", "kw"),
        ),
        *(
            Primitive(
                name=name,
                operations=(operation,),
                engine="vector",
                own=CambriconPrimitive(skip_padding=True),
                operands=operands,
                epilogue=(("relu",),),
                # Down the rows of all columns, then along the row of each window.
                cycles=f"n*oh*ow*(kh+kw-1)*ceil(c/{lanes})",
                peak=f"n*oh*ow*(kh+kw-1)*c/{lanes}",
                issue=f"{TILE}+n*oh*({ROW}+ow*max((kh+kw-1)*ceil(c/{lanes}), 5+2*kw))",
                limits={"n": 1, "c": max(reserved // kept // lanes * lanes, 1)},
                multiples={"c": lanes},
                whole=("kh", "kw"),
            )
            for name, operation, kept in (
                ("pool", "max_pool", MAXIMUM_BYTES),
                ("mean", "average_pool", MEAN_BYTES),
            )
        ),
        Primitive(
            name="matrix_pool",
            operations=("max_pool",),
            engine="matrix",
            # The matrix unit compares rows and columns of windows, many elements at once, and
            # copies the results to VSM. Whole rows move in one piece.
            own=CambriconPrimitive(skip_padding=True),
            operands={"input": MSM, "output": VSM},
            epilogue=(("relu",),),
            cycles=f"n*oh*ow*ceil(c/{lanes})",
            peak=f"n*oh*ow*c/{lanes}",
            issue=f"{TILE}+n*oh*({ROW}+3*(kh+kw-1)*ceil(kw*ow*c/{lanes * lanes})"
            f"+ow*max(ceil(c/{lanes}), 4))",
            limits={"n": 1},
            whole=("c", "ow", "kh", "kw"),
            extents={"c": (1, reserved // COLUMNS_BYTES), "kw": (1, 4)},
            reserved={"msm": 3 * reserved},
        ),
        Primitive(
            name="matrix_mean",
            operations=("average_pool",),
            engine="matrix",
            # One window: its pixels are a matrix that a vector of ones is multiplied by.
            own=CambriconPrimitive(skip_padding=True),
            operands={"input": MSM, "output": VSM},
            epilogue=(("relu",),),
            cycles=f"n*oh*ow*ceil(c/{lanes})*ceil(kh*kw/{lanes})",
            peak=f"n*oh*ow*kh*kw*c/{lanes * lanes}",
            issue=f"{TILE}+n*ceil(c/{lanes})",
            limits={"n": 1},
            whole=("c", "kh", "kw"),
            extents={
                "oh": (1, 1),
                "ow": (1, 1),
                "kh": (1, SIDE),
                "kw": (1, SIDE),
                "c": (1, max((4 * reserved - 2 * SIDE * SIDE) // MATRIX_MEAN_BYTES, 1)),
            },
            reserved={"vsm": 4 * reserved},
        ),
        Primitive(
            name="join",
            operations=("concat",),
            engine="vector",
            # Each part of a run along the axis is copied after the one before it.
            operands={"input": VSM, "output": VSM},
            cycles=f"{POINTS}*(ceil(axis/{lanes})+(parts-1)/2)",
            peak=f"{POINTS}*axis/{lanes}",
            issue=f"{TILE}*(1+parts)+{POINTS}*(1+3*parts)",
            whole=("axis", "parts"),
        ),
        Primitive(
            name="vector",
            operations=(*MAPS, "table"),
            engine="vector",
            operands=operands | {"weight": VSM},
            epilogue=(("relu", "clip"), ("requantise",), ("table",)),
            cycles=f"ceil({POINTS}/{lanes})",
            peak=f"{POINTS}/{lanes}",
            issue=f"{TILE}+ceil({POINTS}/{lanes})",
        ),
        Primitive(
            name="lrn",
            operations=("lrn",),
            engine="vector",
            operands=operands,
            # The square; sums, scale and bias on elements of 64 bits, at twice the time; the power
            # at four times. Sums over five neighbours take three additions.
            cycles=f"n*h*w*(9+2*min(j-1,3))*ceil(c/{lanes})",
            peak=f"n*h*w*(9+2*min(j-1,3))*c/{lanes}",
            issue=f"{TILE}+n*h*w*max((9+2*min(j-1,3))*ceil(c/{lanes}), j+10)",
            whole=("c", "j"),
        ),
        Primitive(
            name="lrn_gradient",
            operations=("lrn_gradient",),
            engine="vector",
            operands=operands,
            # As lrn, with a second power, sums of 32 bits, and three more passes.
            cycles=f"n*h*w*(19+3*min(j-1,3))*ceil(c/{lanes})",
            peak=f"n*h*w*(19+3*min(j-1,3))*c/{lanes}",
            issue=f"{TILE}+n*h*w*max((19+3*min(j-1,3))*ceil(c/{lanes}), j+20)",
            whole=("c", "j"),
            extents={"c": (1, max(reserved // LRN_BYTES, 1))},
        ),
        Primitive(
            name="maximum_gradient",
            operations=("maximum_gradient",),
            engine="vector",
            operands=operands,
            # Compared, multiplied, subtracted, for all values but the last.
            cycles=f"n*3*(j-1)*ceil(p/{lanes})",
            peak=f"n*3*(j-1)*p/{lanes}",
            issue=f"{TILE}+n*3*(j-1)*max(ceil(p/{lanes})+1, 5)",
            multiples={"p": lanes},
            whole=("j", "k"),
        ),
        Primitive(
            name="softmax",
            operations=("softmax",),
            engine="vector",
            operands={"input": AXIS, "output": AXIS},
            # Maximum, distances (two), exponential, sum, the sum's copies and quotients.
            cycles=f"{POINTS}*7*ceil(axis/{lanes})",
            peak=f"{POINTS}*7*axis/{lanes}",
            whole=("axis",),
        ),
        conv(
            "narrow_conv",
            # One block of channels at a time: nearly all of VSM is for pixels then.
            limits={**limits, "co": lanes},
            reserved={"vsm": lanes * SUM_BYTES},
        ),
        conv(
            "slim_conv",
            # A few blocks. Pixels of smaller kernels take so few cycles that the sums of many wait
            # together.
            limits={**limits, "co": SLIM * lanes},
            reserved={"vsm": SLIM * lanes * SUM_BYTES},
            extents={"kh": (2, MOST)},
        ),
        conv(
            "rows_conv",
            # A few of the kernel's rows at a time, where all of them meet the image: such as blocks
            # of channels (planning/channel_blocks.py).
            whole=("kw",),
            extents={"kh": (2, MOST), "kw": (1, 1)},
        ),
        conv(
            "row_conv",
            # One row of the kernel at a time, all pixels by it before the next one: weights are
            # those of a row then, and of the image come the rows alone that it meets.
            operands=product | {"output": Storage(memory="vsm", own=WAITS)},
            limits={**limits, "kh": 1},
            whole=("ci", "kw"),
            extents={"kh": (2, MOST), "kw": (2, MOST)},
        ),
    )


MACHINE = machine()
"""The machine of ACC-C as published."""


def lanes_of(machine: Machine) -> int:
    """Elements that a machine's vector unit takes in a cycle."""
    return machine.primitive("conv").multiples["co"]


def part_of(machine: Machine, channels: int) -> int:
    """Return the number of channels of a pixel summed at once: equal parts of whole blocks."""
    lanes, most = lanes_of(machine), machine.primitive("conv").limits["co"]
    if channels <= most:
        return channels
    blocks = -(-channels // lanes)
    return -(-blocks // -(-channels // most)) * lanes


def queue_of(machine: Machine) -> int:
    """Instructions that wait in a machine's memory queue."""
    return machine.engine("matrix").queue
