"""The primitives of 8-bit integers: uint8 by int8 into int32 lanes, with what follows in them.

Layouts are the float primitives' own: activations NCHW16c, one byte a channel, so that images pass
between both kinds; weights keep side by side the input channels of an output channel that a lane
adds up in one step: four, of a processor with dot products of bytes (OIHW4i16o4i), else two, which
are widened to 16 bits (OIHW4i8o2i).
"""

from __future__ import annotations

from tilewright.machine import Primitive
from tilewright.targets.cpu.functions import MOST, c_function, storage
from tilewright.targets.cpu.planning.capabilities import CpuPrimitive

FIRST = 4
"""Channels of an image that a first convolution reads."""

PAIR = 2
"""Bytes that a lane adds up in one step without dot products of bytes."""

_ELEMENTS = {
    "input": ("uint8",),
    "weight": ("int8",),
    "bias": ("int32",),
    "residual": ("float32", "int32", "uint8", "int8"),
    "output": ("int32", "uint8", "int8", "float32"),
}


def integer_primitives(lanes: int, word: int, words: float) -> tuple[Primitive, ...]:
    """For vectors of ``lanes``, whose lanes add up ``word`` products, ``words`` times a cycle."""
    image, bias = f"NCHW{lanes}c", f"O{lanes}o"
    inner = f"{lanes}o{word}i"
    blocked = f"OIHW{lanes // word}i{inner}" if lanes > word else f"OIHW{inner}"
    rate = lanes * words * word
    temporaries = _temporaries(lanes, word)
    fit = _pair_tiles(words) if word == PAIR else ()
    own = CpuPrimitive(dot=word, temporaries=temporaries, fit=fit)

    def convolution(name: str, source: str, weight: str, **extents: tuple[int, int]) -> Primitive:
        return c_function(
            name,
            "conv",
            operands=storage(
                _ELEMENTS, input=source, weight=weight, bias=bias, residual=image, output=image
            ),
            cycles=f"n*g*oh*ow*ceil(co/{lanes})*ceil(ci/{word})*kh*kw/{words:g}",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{rate:g}",
            own=own,
            multiples={"co": lanes, "ci": lanes},
            whole=("kh", "kw"),
            extents=extents,
        )

    return (
        convolution("conv_first_8", f"NCHW{FIRST}c", f"OIHW{inner}", ci=(1, FIRST), g=(1, 1)),
        convolution("conv_8", image, blocked),
        c_function(
            "conv_grouped_8",
            "conv",
            operands=storage(
                _ELEMENTS,
                input=image,
                weight=f"OIHW{inner}",
                bias=bias,
                residual=image,
                output=image,
            ),
            # Vectors that two groups share are computed for both.
            cycles=f"n*oh*ow*(ceil(g*co/{lanes}) + g)*ceil(ci/{word})*kh*kw/{words:g}",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{rate:g}",
            own=CpuPrimitive(temporaries=temporaries),
            whole=("g", "co", "ci", "kh", "kw"),
            extents={"g": (2, MOST)},
        ),
        c_function(
            "depthwise_conv_8",
            "depthwise_conv",
            operands=storage(
                _ELEMENTS,
                input=image,
                weight=f"OIHW{lanes}o",
                bias=bias,
                residual=image,
                output=image,
            ),
            # A load that widens, and a multiply-add, for each tap.
            cycles=f"n*ceil(c/{lanes})*oh*ow*kh*kw*1.5/{words:g}",
            peak=f"n*c*oh*ow*kh*kw/{lanes * words:g}",
            multiples={"c": lanes},
            whole=("kh", "kw"),
        ),
        c_function(
            "matmul_8",
            "matmul",
            operands=storage(
                _ELEMENTS, input="NC", weight=f"OI{inner}", bias=bias, residual="NC", output="NC"
            ),
            cycles=f"b0*b1*m*n*ceil(co/{lanes})*ceil(ci/{word})/{words:g}",
            peak=f"b0*b1*m*n*co*ci/{rate:g}",
            own=own,
            multiples={"co": lanes},
        ),
        c_function(
            "pool_8",
            "max_pool",
            operands=storage(_ELEMENTS, input=image, residual=image, output=image),
            cycles=f"n*ceil(c/{lanes})*oh*ow*kh*kw/{words:g}",
            peak=f"n*c*oh*ow*kh*kw/{lanes * words:g}",
            multiples={"c": lanes},
            whole=("kh", "kw"),
        ),
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
