"""The primitives of bfloat16: products of pairs of channels, which one instruction adds up.

Layouts are the float primitives' own, so that images pass between both kinds; weights keep two
input channels of an output channel in a 32-bit word (OIHW8i16o2i), as AVX512-BF16 takes them. Sums
are float32, as in float32 products of the same numbers.
"""

from __future__ import annotations

from tilewright.machine import Primitive
from tilewright.targets.cpu.functions import MOST, Kind
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
    kind = Kind(lanes, pairs, PAIR, _ELEMENTS, CpuPrimitive(dot=PAIR, temporaries=1))
    return (
        kind.conv("conv_16", f"OIHW{lanes // PAIR}i{lanes}o{PAIR}i", ci=(FEWEST, MOST)),
        *kind.wide_matmuls("matmul_16", f"OI{wide}o{PAIR}i", wide),
        kind.matmul("matmul_16", f"OI{lanes}o{PAIR}i"),
    )
