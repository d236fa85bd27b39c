"""The primitives of 8-bit integers: uint8 by int8 into int32 lanes, with what follows in them.

Layouts are the float primitives' own: activations NCHW16c, one byte a channel, so that images pass
between both kinds; weights keep four input channels of an output channel in a 32-bit word, as dot
products of bytes take them (OIHW4i16o4i).
"""

from __future__ import annotations

from tilewright.machine import Primitive, Storage

MOST = 1 << 30
"""As large as an extent can be."""

WORD = 4
"""Bytes that one dot product adds up in a lane."""

_ELEMENTS = {
    "input": ("uint8",),
    "weight": ("int8",),
    "bias": ("int32",),
    "residual": ("float32", "uint8", "int8"),
    "output": ("int32", "uint8", "int8", "float32"),
}


def _operands(**layouts: str) -> dict[str, Storage]:
    return {
        role: Storage(memory="dram", layout=layout, elements=_ELEMENTS[role])
        for role, layout in layouts.items()
    }


def integer_primitives(lanes: int, words: float) -> tuple[Primitive, ...]:
    """For vectors of ``lanes`` and ``words`` dot products of whole vectors a cycle."""
    image, bias = f"NCHW{lanes}c", f"O{lanes}o"
    inner = f"{lanes}o{WORD}i"
    blocked = f"OIHW{lanes // WORD}i{inner}" if lanes > WORD else f"OIHW{inner}"
    rate = lanes * words * WORD

    def convolution(name: str, source: str, weight: str, **extents: tuple[int, int]) -> Primitive:
        return Primitive(
            name=name,
            operations=("conv",),
            engine="core",
            operands=_operands(
                input=source, weight=weight, bias=bias, residual=image, output=image
            ),
            epilogue_any=True,
            cycles=f"n*g*oh*ow*ceil(co/{lanes})*ceil(ci/{WORD})*kh*kw/{words:g}",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{rate:g}",
            dot=WORD,
            temporaries=_temporaries(lanes),
            multiples={"co": lanes, "ci": lanes},
            whole=("kh", "kw"),
            sizes="fixed",
            extents=extents,
        )

    return (
        convolution("conv_first_8", f"NCHW{WORD}c", f"OIHW{inner}", ci=(1, WORD), g=(1, 1)),
        convolution("conv_8", image, blocked),
        Primitive(
            name="conv_grouped_8",
            operations=("conv",),
            engine="core",
            operands=_operands(
                input=image, weight=f"OIHW{inner}", bias=bias, residual=image, output=image
            ),
            epilogue_any=True,
            # Vectors that two groups share are computed for both.
            cycles=f"n*oh*ow*(ceil(g*co/{lanes}) + g)*ceil(ci/{WORD})*kh*kw/{words:g}",
            peak=f"n*g*oh*ow*co*ci*kh*kw/{rate:g}",
            temporaries=_temporaries(lanes),
            whole=("g", "co", "ci", "kh", "kw"),
            sizes="fixed",
            extents={"g": (2, MOST)},
        ),
        Primitive(
            name="depthwise_conv_8",
            operations=("depthwise_conv",),
            engine="core",
            operands=_operands(
                input=image, weight=f"OIHW{lanes}o", bias=bias, residual=image, output=image
            ),
            epilogue_any=True,
            # A load that widens, and a multiply-add, for each tap.
            cycles=f"n*ceil(c/{lanes})*oh*ow*kh*kw*1.5/{words:g}",
            peak=f"n*c*oh*ow*kh*kw/{lanes * words:g}",
            multiples={"c": lanes},
            whole=("kh", "kw"),
            sizes="fixed",
        ),
        Primitive(
            name="matmul_8",
            operations=("matmul",),
            engine="core",
            operands=_operands(
                input="NC", weight=f"OI{inner}", bias=bias, residual="NC", output="NC"
            ),
            epilogue_any=True,
            cycles=f"b0*b1*m*n*ceil(co/{lanes})*ceil(ci/{WORD})/{words:g}",
            peak=f"b0*b1*m*n*co*ci/{rate:g}",
            dot=WORD,
            temporaries=_temporaries(lanes),
            multiples={"co": lanes},
            sizes="fixed",
        ),
        Primitive(
            name="pool_8",
            operations=("max_pool",),
            engine="core",
            operands=_operands(input=image, residual=image, output=image),
            epilogue_any=True,
            cycles=f"n*ceil(c/{lanes})*oh*ow*kh*kw/{words:g}",
            peak=f"n*c*oh*ow*kh*kw/{lanes * words:g}",
            multiples={"c": lanes},
            whole=("kh", "kw"),
            sizes="fixed",
        ),
    )


def _temporaries(lanes: int) -> int:
    """Registers of a dot product: a broadcast alone, or also 16-bit halves of both operands."""
    return 1 if lanes >= 16 else 5
