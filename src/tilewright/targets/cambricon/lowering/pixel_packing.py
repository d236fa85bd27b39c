"""Bands of pixels: one product for several neighbours, where channels are few.

The windows of a band are one wider window, the channels of its pixels lie side by side in the
result: a product with P times the outputs in the place of P products, for a matrix with zeros where
a pixel's window does not reach. First layers fill the lanes so, and take fewer scalar instructions.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.sliding import Sliding
from tilewright.targets.cambricon.machine import SUM_BYTES, lanes_of

ISSUE, BATCH = 8, 14
"""Scalar instructions of a band, and of a batch of pixels, those of products apart."""

EXPOSED = 2
"""Cycles of those in which the matrix unit waits, about, however long its products take."""


def banded(c: Context, weights: Operand, rows: Sliding, columns: Sliding) -> tuple[Sliding, int]:
    """Return the windows along a row in bands, and a band's pixels; 1 where bands do not pay.

    The weights are copied for the band that is chosen. Their load is counted, too: it grows with
    the square of a band's pixels, and the kernel that begins a network waits for all of it.
    """
    settled = not {"g", "co", "ci", "kh"} & c.nest.looped and c.nest.extent("g") == 1
    image = columns.axis is not None and columns.out == "ow" and columns.dilation == 1
    if not settled or not image or not c.transfers.by_segment(weights):
        return columns, 1
    lanes, co, width = lanes_of(c.machine), c.nest.extent("co"), c.nest.tile_size("ow")
    most = max(c.temporaries.size // SUM_BYTES // co, 1)

    results = prod(c.nest.extent(dim) for dim in ("n", "oh", "ow"))
    rate = c.machine.move(c.machine.main, "msm").bytes_per_cycle

    def cycles(pixels: int) -> float:
        row = ((pixels - 1) * columns.stride + columns.kernel) * c.nest.extent("ci")
        blocks = -(-pixels * co // lanes) * -(-row // lanes)
        load = 2 * rows.kernel * row * pixels * co / rate
        batch = max(min(most, width), 1)
        # Batches of bands are short.
        beside = ISSUE if pixels > 1 else 1 + BATCH / batch
        issue = 2 * rows.kernel + beside
        return (max(rows.kernel * blocks, issue) + EXPOSED) * results / pixels + load

    sizes = [p for p in range(1, width + 1) if not width % p and not c.nest.extent("ow") % p]
    best = min((p for p in sizes if p <= most), key=cycles)
    if best == 1 or not c.transfers.pack_pixels(weights, best, columns.stride):
        return columns, 1
    span = (best - 1) * columns.stride + columns.kernel
    return replace(columns, kernel=span, stride=best * columns.stride), best
