"""The primitives of numbers of which a lane takes several in one step: 8-bit integers (uint8 by
int8 into int32 lanes, with what follows in them), and bfloat16 (into float32).

Layouts are the float primitives' own: activations NCHW16c, one number a channel, so that images
pass between the kinds; weights keep side by side the input channels of an output channel that a
lane adds up in one step: four bytes, of a processor with dot products of bytes (OIHW4i16o4i), else
two, which are widened to 16 bits (OIHW4i8o2i), and two bfloat16, as AVX512-BF16 takes them
(OIHW8i16o2i).
"""

from __future__ import annotations

from tilewright.machine import Primitive
from tilewright.targets.cpu.functions import MOST, Kind
from tilewright.targets.cpu.planning.capabilities import CpuPrimitive

FIRST = 4
"""Channels of an image that a first convolution reads."""

PAIR = 2
"""Numbers that a lane adds up in one step: bytes without dot products of bytes, and bfloat16."""

FEWEST = 5
"""Input channels of bfloat16; of fewer, half a word and most of a block would be empty."""

_BYTES = {
    "input": ("uint8",),
    "weight": ("int8",),
    "bias": ("int32",),
    "residual": ("float32", "int32", "uint8", "int8"),
    "output": ("int32", "uint8", "int8", "float32"),
}


_SHORTS = {
    "input": ("bfloat16",),
    "weight": ("bfloat16",),
    "bias": ("float32", "bfloat16"),
    "residual": ("float32", "bfloat16", "uint8", "int8"),
    "output": ("float32", "bfloat16", "uint8", "int8"),
}


def integer_primitives(lanes: int, word: int, words: float) -> tuple[Primitive, ...]:
    """For vectors of ``lanes``, whose lanes add up ``word`` products, ``words`` times a cycle."""
    inner = f"{lanes}o{word}i"
    blocked = f"OIHW{lanes // word}i{inner}" if lanes > word else f"OIHW{inner}"
    temporaries = _temporaries(lanes, word)
    fit = _pair_tiles(words) if word == PAIR else ()
    own = CpuPrimitive(dot=word, temporaries=temporaries, fit=fit)
    kind = Kind(lanes, words, word, _BYTES, own)
    return (
        kind.conv("conv_first_8", f"OIHW{inner}", source=f"NCHW{FIRST}c", ci=(1, FIRST), g=(1, 1)),
        kind.conv("conv_8", blocked),
        kind.grouped("conv_grouped_8", f"OIHW{inner}", CpuPrimitive(temporaries=temporaries)),
        # A load that widens, and a multiply-add, for each tap.
        kind.windows("depthwise_conv_8", "depthwise_conv", weighted=True, effort="*1.5"),
        kind.matmul("matmul_8", f"OI{inner}"),
        kind.windows("pool_8", "max_pool"),
    )


def _temporaries(lanes: int, word: int) -> int:
    """Registers of a step beside a float's: products of pairs are added by another instruction.

    Of 64-byte vectors a float's element is no register, but a byte's word is one.
    """
    return (1 if lanes >= 16 else 0) + (1 if word == PAIR else 0)


WIDENING, WAITING = 1.0, 0.3
"""Cycles of a step in which pairs are widened, and what each point of a single vector waits for its
pair (fitted on an AMD processor of family 25 with AVX2: 256 channels, 21 register tiles)."""

MOST_VECTORS, MOST_POINTS = 8, 28


def _pair_tiles(words: float) -> tuple[tuple[float, float, float, float], ...]:
    """Vectors, points, cycles of a step and of a call of register tiles that widen pairs."""

    def step(vectors: int, points: int) -> float:
        waiting = WAITING * points if vectors == 1 else 0.0
        return points * vectors / words + WIDENING + waiting

    return tuple(
        (vectors, points, step(vectors, points), 20.0 + 2.0 * points * vectors)
        for vectors in range(1, MOST_VECTORS + 1)
        for points in range(1, MOST_POINTS + 1)
    )


def short_primitives(lanes: int, pairs: float, wide: int) -> tuple[Primitive, ...]:
    """Products of bfloat16, of which vectors of ``lanes`` add up ``pairs`` pairs a cycle.

    ``wide`` is the number of output channels that a register tile of a matrix product covers.
    """
    kind = Kind(lanes, pairs, PAIR, _SHORTS, CpuPrimitive(dot=PAIR, temporaries=1))
    return (
        kind.conv("conv_16", f"OIHW{lanes // PAIR}i{lanes}o{PAIR}i", ci=(FEWEST, MOST)),
        *kind.wide_matmuls("matmul_16", f"OI{wide}o{PAIR}i", wide),
        kind.matmul("matmul_16", f"OI{lanes}o{PAIR}i"),
    )
