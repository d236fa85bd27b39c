"""The primitives of bfloat16: products of pairs of channels, which one instruction adds up.

Layouts are the float primitives' own, so that images pass between both kinds; weights keep two
input channels of an output channel in a 32-bit word (OIHW8i16o2i), as AVX512-BF16 takes them. Sums
are float32, as in float32 products of the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.machine import Primitive
from tilewright.targets.cpu.functions import MOST, c_function, storage
from tilewright.targets.cpu.planning.capabilities import CpuPrimitive

PAIR = 2
"""Numbers that one dot product adds up in a lane."""

FEWEST = 5
"""Input channels; of fewer, half a word and most of a block would be empty."""

_ELEMENTS = {
    "input": ("bfloat16",),
    "weight": ("bfloat16",),
    "bias": ("float32", "bfloat16"),
    "residual": ("float32", "bfloat16", "uint8", "int8"),
    "output": ("float32", "bfloat16", "uint8", "int8"),
}


def short_primitives(lanes: int, pairs: float, wide: int) -> tuple[Primitive, ...]:
    """For vectors of ``lanes`` and ``pairs`` dot products of whole vectors a cycle.

    ``wide`` is the number of output channels that a register tile of a matrix product covers.
    """
    image, bias = f"NCHW{lanes}c", f"O{lanes}o"
    rate = lanes * pairs * PAIR

    def product(name: str, block: int, extents: Mapping[str, tuple[int, int]]) -> Primitive:
        return c_function(
            name,
            "matmul",
            operands=storage(
                _ELEMENTS,
                input="NC",
                weight=f"OI{block}o{PAIR}i",
                bias=bias,
                residual="NC",
                output="NC",
            ),
            cycles=f"b0*b1*m*n*ceil(co/{lanes})*ceil(ci/{PAIR})/{pairs:g}",
            peak=f"b0*b1*m*n*co*ci/{rate:g}",
            own=CpuPrimitive(dot=PAIR, temporaries=1),
            multiples={"co": block},
            extents=dict(extents),
        )

    return (
        c_function(
            "conv_16",
            "conv",
            operands=storage(
                _ELEMENTS,
                input=image,
                weight=f"OIHW{lanes // PAIR}i{lanes}o{PAIR}i",
                bias=bias,
                residual=image,
                output=image,
            ),
            cycles=f"n*g*oh*ow*ceil(co/{lanes})*ceil(ci/{PAIR})*kh*kw/{pairs:g}",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{rate:g}",
            own=CpuPrimitive(dot=PAIR, temporaries=1),
            multiples={"co": lanes, "ci": lanes},
            whole=("kh", "kw"),
            extents={"ci": (FEWEST, MOST)},
        ),
        *(product(f"matmul_16_{d}", wide, {d: (2, MOST), "co": (wide, MOST)}) for d in ("m", "n")),
        product("matmul_16", lanes, {}),
    )
