"""ShiDianNao (ACC-S): what is published of it, and what we chose.

Published (Du et al., ISCA 2015, and the accelerator table of the DLIR thesis): an array of 8 x 8
processing elements with one 16-bit multiplier-adder each, NBin and NBout of 64 KB, SB of 128 KB,
1 GHz. Each element computes one point of an output map; a kernel's weight is broadcast to all of
them and neurons shift from element to element, so a convolution processes 8 x 8 points of one
output map at a time: ceil(Wo/8) * ceil(Ho/8) * Kx * Ky * Cin * Cout cycles. Pooling takes
ceil(Wo/8) * ceil(Ho/8) * Kx * Ky * C cycles, a fully connected layer ceil(No/64) * Ni. The original
keeps small networks on the chip whole; the thesis attaches main memory and cuts tiles, as we do.
Its other two configurations have arrays of 16 x 16 and 32 x 32. The rest is ours: see README.md.

A dim that an operation does not have counts as 1 in the expressions.
"""

from __future__ import annotations

from tilewright.machine import Fusion, Machine, Move, Primitive
from tilewright.targets.generic.three_buffers import (
    Configuration,
    accelerator,
    primitive,
    products,
    softmax_primitive,
    vector_primitive,
)

ORIGINAL = Configuration("shidiannao", side=8, nbin=64 << 10, nbout=64 << 10, sb=128 << 10)
SMALL = Configuration("shidiannao-s", side=16, nbin=8 << 10, nbout=8 << 10, sb=32 << 10)
LARGE = Configuration("shidiannao-l", side=32, nbin=32 << 10, nbout=32 << 10, sb=768 << 10)
CONFIGURATIONS = (SMALL, ORIGINAL, LARGE)
"""ACC-S-S, ACC-S and ACC-S-L of the thesis' table 5.3, as printed there.

``side`` is the number of rows and columns of the array. (The configuration called small has small
buffers, but an array of 16 x 16.)
"""


FUSIONS = {
    "conv-pool": "conv -> pool",
    "conv-conv": "conv -> conv",
    "conv-pool-conv-pool": "conv -> pool -> conv -> pool",
    "product-product": "product -> product",
}
"""Kernels that may be one where all that they read and make lies in the buffers whole, as the
original's networks do."""


def _primitives(side: int) -> tuple[Primitive, ...]:
    elements = side * side
    return (
        primitive(
            "fc",
            # A convolution whose result is one point is a fully connected layer.
            *("matmul", "conv"),
            operands=products(co=elements),
            cycles=f"n*g*b0*b1*m*ceil(co/{elements})*ci*kh*kw",
            peak=f"n*g*b0*b1*m*co*ci*kh*kw/{elements}",
            multiples={"co": elements},
            extents={"oh": (1, 1), "ow": (1, 1)},
        ),
        primitive(
            "conv",
            operands=products(),
            cycles=f"n*g*co*ci*kh*kw*ceil(oh/{side})*ceil(ow/{side})",
            peak=f"n*g*co*ci*kh*kw*oh*ow/{elements}",
            multiples={"oh": side, "ow": side},
        ),
        primitive(
            "depthwise_conv",
            operands=products(),
            cycles=f"n*c*kh*kw*ceil(oh/{side})*ceil(ow/{side})",
            peak=f"n*c*kh*kw*oh*ow/{elements}",
            multiples={"oh": side, "ow": side},
        ),
        primitive(
            "pool",
            *("max_pool", "average_pool"),
            cycles=f"n*c*kh*kw*ceil(oh/{side})*ceil(ow/{side})",
            peak=f"n*c*kh*kw*oh*ow/{elements}",
            multiples={"oh": side, "ow": side},
        ),
        vector_primitive(elements),
        primitive(
            "lrn",
            epilogue=(("requantise",),),
            # Per block of a map: j squares summed, then scale and add, the power by two lookups
            # (mantissa and exponent), and the product with the input.
            cycles=f"n*c*ceil(h/{side})*ceil(w/{side})*(j+4)",
            peak=f"n*c*h*w*(j+4)/{elements}",
            multiples={"h": side, "w": side},
            whole=("c", "j"),
        ),
        softmax_primitive(elements),
    )


def machine(size: Configuration = ORIGINAL) -> Machine:
    """ACC-S in one of its sizes; make other variants with ``with_values``."""
    side = size.side
    plain = accelerator(
        size,
        f"ShiDianNao: an array of {side} x {side} elements, 16-bit fixed point, 1 GHz",
        _primitives(side),
        granule=2 * side,
        banks=side,
        layouts={"activation": "NCHW", "weight": "OIHW"},
    )
    # In the original the buffers exchange their roles when a layer is done; here what one holds
    # goes to the other, a block of the array in a cycle.
    exchange = Move(
        name="exchange",
        source="nbout",
        target="nbin",
        engine="store",
        bytes_per_cycle=2 * side * side,
        in_flight=1,
    )
    fusions = (
        Fusion(name=name, query=query, residency="whole", between="nbin")
        for name, query in FUSIONS.items()
    )
    return plain.model_copy(
        update={"moves": (*plain.moves, exchange), "fusions": (*plain.fusions, *fusions)}
    )


MACHINE = machine()
"""The machine of ACC-S as published."""
