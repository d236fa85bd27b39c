"""The dense Cambricon-X (ACC-X): what is published of it, and what we chose.

Published (Zhang et al., MICRO 2016, and the accelerator table of the DLIR thesis): 16 processing
elements with 16 multipliers each, NBin and NBout of 8 KB, 2 KB of synapse buffer per element (SB,
32 KB together), 16-bit fixed point, 1 GHz, 128 GB/s and 100 ns to main memory; a dense layer takes
ceil(Cout/16) * ceil(Cin/16) * Kx * Ky * Ho * Wo cycles. The rest is ours: see README.md.

A dim that an operation does not have counts as 1 in the expressions.
"""

from __future__ import annotations

from tilewright.machine import Engine, Machine, Memory, Move, Primitive, Storage

LANES = 16
"""Processing elements, multipliers of each, and elements that NBin and NBout pass in a cycle."""

TABLE_BYTES = 16384
"""Memory of the function tables (sigmoid, tanh, powers of LRN, exponential of softmax)."""

ACTIVATIONS = ("relu", "clip", "leaky_relu")
"""Map operations that the pipeline applies to accumulators."""

TABLES = (
    *("sigmoid", "tanh", "hard_sigmoid", "hard_swish", "silu", "exp"),
    *("log", "sqrt", "erf", "elu", "softplus", "gelu"),
)
"""Map operations by interpolation in a table, on 16-bit values."""

EPILOGUE = (("add",), ACTIVATIONS, ("requantise",), TABLES)
"""What follows the accumulation: the residual, an activation, back to 16 bits, a table."""

_NBIN = Storage(memory="nbin")
_NBOUT = Storage(memory="nbout")
# The outer dims of pointwise operations, softmax and batched products.
_POINTS = "d0*d1*d2*d3*d4*d5"


def _products() -> tuple[Primitive, ...]:
    return (
        Primitive(
            name="conv",
            operations=("conv", "matmul"),
            engine="compute",
            operands={
                "input": _NBIN,
                "weight": Storage(memory="sb", multiples={"co": LANES}),
                "bias": Storage(memory="sb", joined="weight"),
                "residual": _NBOUT,
                "output": _NBOUT,
            },
            epilogue=EPILOGUE,
            cycles="n*g*b0*b1*m*ceil(co/16)*ceil(ci/16)*kh*kw*oh*ow",
            peak="n*g*b0*b1*m*co*ci*kh*kw*oh*ow/256",
            multiples={"co": LANES, "ci": LANES},
        ),
        Primitive(
            name="depthwise_conv",
            operations=("depthwise_conv",),
            engine="compute",
            operands={
                "input": _NBIN,
                "weight": Storage(memory="sb", multiples={"c": LANES}),
                "bias": Storage(memory="sb", joined="weight"),
                "residual": _NBOUT,
                "output": _NBOUT,
            },
            epilogue=EPILOGUE,
            # NBin passes 16 channels of one pixel a cycle: each element uses one multiplier.
            cycles="n*ceil(c/16)*oh*ow*kh*kw",
            peak="n*c*oh*ow*kh*kw/16",
            multiples={"c": LANES},
        ),
    )


def _others() -> tuple[Primitive, ...]:
    operands = {"input": _NBIN, "residual": _NBOUT, "output": _NBOUT}
    return (
        Primitive(
            name="pool",
            operations=("max_pool", "average_pool"),
            engine="compute",
            operands=operands,
            epilogue=EPILOGUE,
            cycles="n*ceil(c/16)*oh*ow*kh*kw",
            peak="n*c*oh*ow*kh*kw/16",
            multiples={"c": LANES},
        ),
        Primitive(
            name="vector",
            operations=(
                *("add", "sub", "mul", "max", "min"),
                *("neg", "abs", "requantise"),
                *ACTIVATIONS,
                *TABLES,
            ),
            engine="compute",
            operands={**operands, "weight": _NBIN},
            epilogue=EPILOGUE,
            cycles=f"ceil({_POINTS}/16)",
            peak=f"{_POINTS}/16",
        ),
        Primitive(
            name="lrn",
            operations=("lrn",),
            engine="compute",
            operands=operands,
            epilogue=(("requantise",),),
            # Per 16 channels: j squares summed, then scale and add, the power by two lookups
            # (mantissa and exponent), and the product with the input.
            cycles="n*ceil(c/16)*h*w*(j+4)",
            peak="n*c*h*w*(j+4)/16",
            whole=("c", "j"),
        ),
        Primitive(
            name="softmax",
            operations=("softmax",),
            engine="compute",
            operands=operands,
            # Per 16 elements: the maximum, the exponential with its sum, and 16 dividers that
            # give one bit of the quotient a cycle.
            cycles=f"{_POINTS}*ceil(axis/16)*18",
            peak=f"{_POINTS}*axis*18/16",
            whole=("axis",),
        ),
    )


def machine() -> Machine:
    """Dense ACC-X; make variants with ``with_values``."""
    bandwidth, latency = 128.0, 100

    def move(source: str, target: str, engine: str) -> Move:
        return Move(
            name=f"{engine}_{target if engine == 'load' else source}",
            source=source,
            target=target,
            engine=engine,
            bytes_per_cycle=bandwidth,
            latency=latency,
            in_flight=1,
        )

    return Machine(
        name="cambricon-x",
        description="Cambricon-X without sparsity: 16 x 16 multipliers, 16-bit fixed point, 1 GHz",
        clock_hz=1e9,
        memories=(
            Memory(name="dram", bytes_per_cycle=bandwidth),
            Memory(name="nbin", bytes=8192, granule=32),
            Memory(name="nbout", bytes=8192, granule=32),
            Memory(name="sb", bytes=32768, banks=16, granule=32),
            Memory(name="tables", bytes=TABLE_BYTES, granule=32),
        ),
        moves=(
            move("dram", "nbin", "load"),
            move("dram", "sb", "load"),
            move("dram", "nbout", "load"),
            move("dram", "tables", "load"),
            move("nbout", "dram", "store"),
        ),
        engines=(Engine(name="load"), Engine(name="store"), Engine(name="compute")),
        primitives=(*_products(), *_others()),
        element="fixed16",
        accumulator="fixed32",
        instruction_bytes=128,
        layouts={"activation": "NHWC", "weight": "OHWI"},
    )


MACHINE = machine()
"""Dense ACC-X as published."""
