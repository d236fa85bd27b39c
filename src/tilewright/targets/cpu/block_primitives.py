"""The primitives that work in scratch, block by block, and what float operands may be.

Winograd's method, and depthwise separable convolution.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.machine import Primitive
from tilewright.targets.cpu.functions import FLOATS, c_function, scratch_storage
from tilewright.targets.cpu.planning.blocks import PANEL
from tilewright.targets.cpu.planning.capabilities import CpuPrimitive

FEW_CHANNELS = 4
"""The most input channels of a convolution that takes a plain NCHW input."""

INPUT_CYCLES: Mapping[int, int] = {4: 90, 6: 230, 8: 470}
"""Cycles to transform one vector of channels of an input tile, by the tile's extent."""

OUTPUT_CYCLES: Mapping[tuple[int, int], int] = {(2, 4): 50, (4, 6): 145, (2, 6): 110, (6, 8): 350}
"""Cycles to transform back one vector of channels of an output tile, and to write it, by the
extents of the output tile and the input tile."""


def winograd(lanes: int, vectors: float, sizes: tuple[int, int], plain: bool) -> Primitive:
    """Convolution by Winograd's method: one instance covers a block of tiles and of channels.

    ``sizes`` are the extents of the output tile and the window. ``plain`` takes weights that are
    not transformed yet. The peak counts the method's own products, which are fewer than a direct
    convolution's.
    """
    tile, taps = sizes
    inner = tile + taps - 1
    padded = f"{lanes}*(ceil(ci/{lanes}) + ceil(co/{lanes}))"
    panels = f" + 2*v*{lanes}*(min(ci, {PANEL})*ceil(co/{lanes}) + 1)"
    return c_function(
        f"winograd_{tile}{'' if taps == 3 else '_5x5'}{'_plain' if plain else ''}",
        "winograd_conv",
        operands=scratch_storage(
            lanes,
            f"OIHW{lanes}o" if plain else f"OHWI{lanes}o",
            FLOATS["weight"] if plain else ("float32",),
        ),
        approximate=True,
        cycles=f"n*g*th*tw*(u*v*ceil(co/{lanes})*ci/{vectors:g}"
        f" + {INPUT_CYCLES[inner]}*ceil(ci/{lanes})"
        f" + {OUTPUT_CYCLES[tile, inner]}*ceil(co/{lanes}))",
        peak=f"n*g*th*tw*u*v*co*ci/{lanes * vectors:g}",
        # Transformed inputs and products, plane by plane, a vector apart; two panels of weights,
        # which few tiles do not fill (panel_channels).
        own=CpuPrimitive(
            scratch=f"u*v*(th*tw*{padded} + {2 * lanes})" + (panels if plain else ""),
            pools=("max_pool", "average_pool"),
        ),
        # Blocks of channels must not hold two groups.
        multiples={"co": lanes, "ci": lanes},
        whole=("r", "s", "pr", "ps", "ci", "u", "v", "kh", "kw"),
        extents={
            "r": (tile, tile),
            "u": (inner, inner),
            "kh": (taps, taps) if plain else (1, 1),
            "ci": (FEW_CHANNELS + 1, 1 << 20),
        },
    )


def separable(lanes: int, vectors: float) -> Primitive:
    """A depthwise convolution and the 1x1 one after it: scratch holds a block of the former."""
    return c_function(
        "separable_conv",
        "separable_conv",
        # Both weights: the product's have windows of one point.
        operands=scratch_storage(lanes, f"OIHW{lanes}o", ("float32",)),
        cycles=f"n*oh*ow*(ceil(c/{lanes})*kh*kw + ceil(co/{lanes})*c)/{vectors:g}",
        peak=f"n*oh*ow*c*(kh*kw + co)/{lanes * vectors:g}",
        own=CpuPrimitive(scratch=f"oh*ow*{lanes}*ceil(c/{lanes})"),
        multiples={"co": lanes, "c": lanes},
        whole=("c", "kh", "kw"),
    )
