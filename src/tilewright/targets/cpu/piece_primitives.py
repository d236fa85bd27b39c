"""The primitives of float32 in pieces of bfloat16, on processors with matrix tiles (AMX)."""

from __future__ import annotations

from tilewright.machine import Primitive, Storage
from tilewright.numerics.pieces import GROUP
from tilewright.planning.pieces import POINTS, TILE_WORDS
from tilewright.targets.cpu.block_primitives import FEW_CHANNELS, storage

_MOST = 1 << 20
_RATE = TILE_WORDS * GROUP


def piece_primitives(block_cycles: float) -> tuple[Primitive, ...]:
    """Convolutions without groups, and products of matrices."""
    image = f"NCHW{POINTS}c"
    return (
        _product("conv_pieces", "piece_conv", ("n", "oh*ow"), "*kh*kw", image, block_cycles),
        _product("matmul_pieces", "piece_matmul", ("b0*b1", "m*n"), "", "NC", block_cycles),
    )


def _product(
    name: str,
    operation: str,
    points: tuple[str, str],
    taps: str,
    image: str,
    block_cycles: float,
) -> Primitive:
    outer, count = points
    weight = Storage(memory="dram", layout=f"OI2o{POINTS}i{POINTS}o2i", elements=("bfloat16",))
    tiles = f"{outer}*ceil({count}/{POINTS})*ceil(co/{POINTS})"
    return Primitive(
        name=name,
        operations=(operation,),
        engine="core",
        operands={
            **storage(input=image, bias=f"O{POINTS}o", residual=image, scratch="", output=image),
            "weight": weight,
        },
        epilogue_any=True,
        approximate=True,
        block_cycles=block_cycles,
        cycles=f"{tiles}*ceil(ci/{GROUP}){taps}*{block_cycles:g}",
        peak=f"{outer}*{count}*co*ci{taps}*{block_cycles:g}/{_RATE}",
        multiples={"co": POINTS, "ci": GROUP},
        whole=("ci", "kh", "kw") if taps else ("ci",),
        sizes="fixed",
        extents={"ci": (FEW_CHANNELS + 1, _MOST)},
    )
