"""The primitives of float32 in pieces of bfloat16, on processors with matrix tiles (AMX)."""

from __future__ import annotations

from tilewright.machine import Primitive, Storage
from tilewright.numerics.pieces import GROUP, PRODUCTS, THREE, TWO
from tilewright.targets.cpu.block_primitives import FEW_CHANNELS
from tilewright.targets.cpu.functions import c_function, storage
from tilewright.targets.cpu.planning.capabilities import CpuPrimitive
from tilewright.targets.cpu.planning.pieces import POINTS, TILE_WORDS

_MOST = 1 << 20
_RATE = TILE_WORDS * GROUP


PIECE_PRIMITIVES = {
    TWO: ("conv_pieces", "matmul_pieces"),
    THREE: ("conv_pieces_3", "matmul_pieces_3"),
}
"""Names, by how many pieces a number has."""


def piece_primitives(block_cycles: float) -> tuple[Primitive, ...]:
    """Convolutions without groups, and products of matrices, in two pieces and in three.

    ``block_cycles`` are those of a block in two pieces.
    """
    image = f"NCHW{POINTS}c"
    primitives: list[Primitive] = []
    for pieces, (conv, matmul) in PIECE_PRIMITIVES.items():
        cycles = block_cycles * len(PRODUCTS[pieces]) / len(PRODUCTS[TWO])
        primitives += [
            _product(conv, pieces, "piece_conv", ("n", "oh*ow"), "*kh*kw", image, cycles),
            _product(matmul, pieces, "piece_matmul", ("b0*b1", "m*n"), "", "NC", cycles),
        ]
    return tuple(primitives)


def _product(
    name: str,
    pieces: int,
    operation: str,
    points: tuple[str, str],
    taps: str,
    image: str,
    block_cycles: float,
) -> Primitive:
    outer, count = points
    # Two pieces were split before; floats are split as the kernel runs.
    layout = f"OI2o{POINTS}i{POINTS}o2i" if pieces == TWO else f"OI2o{GROUP}i{POINTS}o"
    element = "bfloat16" if pieces == TWO else "float32"
    weight = Storage(memory="dram", layout=layout, elements=(element,))
    tiles = f"{outer}*ceil({count}/{POINTS})*ceil(co/{POINTS})"
    return c_function(
        name,
        operation,
        operands={
            **storage(input=image, bias=f"O{POINTS}o", residual=image, scratch="", output=image),
            "weight": weight,
        },
        approximate=pieces == TWO,
        own=CpuPrimitive(block_cycles=block_cycles),
        cycles=f"{tiles}*ceil(ci/{GROUP}){taps}*{block_cycles:g}",
        peak=f"{outer}*{count}*co*ci{taps}*{block_cycles:g}/{_RATE}",
        multiples={"co": POINTS, "ci": GROUP},
        whole=("ci", "kh", "kw") if taps else ("ci",),
        extents={"ci": (FEW_CHANNELS + 1, _MOST)},
    )
