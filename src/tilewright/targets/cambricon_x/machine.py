"""Cambricon-X (ACC-X): what is published of it, and what we chose.

Published (Zhang et al., MICRO 2016, and the accelerator table of the DLIR thesis): 16 processing
elements with 16 multipliers each, NBin and NBout of 8 KB, 2 KB of synapse buffer per element (SB,
32 KB together), 16-bit fixed point, 1 GHz, 128 GB/s and 100 ns to main memory; a dense layer takes
ceil(Cout/16) * ceil(Cin/16) * Kx * Ky * Ho * Wo cycles. The thesis' other two configurations have 8
or 32 channels at once and larger buffers. With weights compressed by step indexing (MICRO 2016) a
pixel takes as long as the slowest element. The rest is ours: see README.md.

A dim that an operation does not have counts as 1 in the expressions.
"""

from __future__ import annotations

from tilewright.machine import Machine, Primitive
from tilewright.targets.generic.three_buffers import (
    Configuration,
    accelerator,
    primitive,
    products,
    softmax_primitive,
    vector_primitive,
)

ORIGINAL = Configuration("cambricon-x", side=16, nbin=8 << 10, nbout=8 << 10, sb=32 << 10)
MEDIUM = Configuration("cambricon-x-m", side=8, nbin=64 << 10, nbout=64 << 10, sb=128 << 10)
LARGE = Configuration("cambricon-x-l", side=32, nbin=32 << 10, nbout=32 << 10, sb=768 << 10)
CONFIGURATIONS = (ORIGINAL, MEDIUM, LARGE)
"""ACC-X, ACC-X-M and ACC-X-L of the thesis' table 5.3, as printed there.

``side`` is the number of processing elements, of multipliers of each, and of elements that NBin
and NBout pass in a cycle.
"""


def _primitives(lanes: int) -> tuple[Primitive, ...]:
    return (
        primitive(
            "conv",
            *("conv", "matmul"),
            operands=products(co=lanes),
            cycles=f"n*g*b0*b1*m*ceil(co/{lanes})*ceil(ci/{lanes})*kh*kw*oh*ow",
            peak=f"n*g*b0*b1*m*co*ci*kh*kw*oh*ow/{lanes * lanes}",
            multiples={"co": lanes, "ci": lanes},
        ),
        primitive(
            "sparse_conv",
            "sparse_product",
            operands=products(),
            # What the slowest element takes for a pixel, in 64ths (numerics/sparse.py).
            cycles="n*oh*ow*min(cb*cs*alone,cb*cs*each+lead)/64",
            peak="n*oh*ow*min(cb*cs*alone,cb*cs*each+lead)/64",
            multiples={"cl": lanes},
            whole=("cl", "cc", "kh", "kw", "e", "alone", "each", "lead"),
        ),
        primitive(
            "depthwise_conv",
            operands=products(c=lanes),
            # NBin passes the channels of one pixel a cycle: each element uses one multiplier.
            cycles=f"n*ceil(c/{lanes})*oh*ow*kh*kw",
            peak=f"n*c*oh*ow*kh*kw/{lanes}",
            multiples={"c": lanes},
        ),
        primitive(
            "pool",
            *("max_pool", "average_pool"),
            cycles=f"n*ceil(c/{lanes})*oh*ow*kh*kw",
            peak=f"n*c*oh*ow*kh*kw/{lanes}",
            multiples={"c": lanes},
        ),
        vector_primitive(lanes),
        primitive(
            "lrn",
            epilogue=(("requantise",),),
            # Per row of lanes: j squares summed, then scale and add, the power by two lookups
            # (mantissa and exponent), and the product with the input.
            cycles=f"n*ceil(c/{lanes})*h*w*(j+4)",
            peak=f"n*c*h*w*(j+4)/{lanes}",
            whole=("c", "j"),
        ),
        softmax_primitive(lanes),
    )


def machine(size: Configuration = ORIGINAL) -> Machine:
    """ACC-X in one of its sizes; make other variants with ``with_values``."""
    lanes = size.side
    return accelerator(
        size,
        f"Cambricon-X: {lanes} x {lanes} multipliers, 16-bit fixed point, 1 GHz",
        _primitives(lanes),
        granule=2 * lanes,
        banks=lanes,
        layouts={"activation": "NHWC", "weight": "OHWI"},
    )


MACHINE = machine()
"""The machine of ACC-X as published."""
