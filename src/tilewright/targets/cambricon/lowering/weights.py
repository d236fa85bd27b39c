"""Weights laid out by segment: what one tile needs lies in one piece of main memory.

The order of segments is that of the tiles along the output channels, the input channels, the rows;
within one, position by position of the kernel, input channel by input channel, the weights of all
output channels lie side by side: a matrix of rows that belong to one input each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.graph.placement import WEIGHTS
from tilewright.ir.types import Array
from tilewright.planning.domain import Affine
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.tile.dialect import BufferOp


@dataclass(frozen=True)
class Segments:
    """The cut of one weight tensor: extents of its dims, and tile sizes (steps)."""

    group: int
    co: int
    co_step: int
    ci: int
    ci_step: int
    rows: int
    row_step: int
    width: int
    """Columns of the kernel; ``rows``: its rows."""
    transposed: bool
    """True if the tensor has input channels first."""
    band: int = 1
    """Neighbouring pixels that one product computes, each with the weights at its place."""
    stride: int = 1
    """Positions from one of them to the next."""
    channel: str = "co"
    """The dim of the output channels."""

    @property
    def size(self) -> int:
        """Elements of the whole tensor."""
        return self.group * self.banded_size

    def relaid(self, values: Array) -> Array:
        """The elements in the order of the segments."""
        rows = values.swapaxes(0, 1) if self.transposed else values
        if rows.shape[1] != self.ci:
            # Rows are blocks of input channels (targets/cambricon/planning/channel_blocks.py).
            rows = rows.reshape(rows.shape[0], self.rows, self.ci).swapaxes(1, 2)
        rows = rows.reshape(rows.shape[0], rows.shape[1], self.rows, self.width)
        if self.band > 1:
            return self._banded(rows)
        parts: list[Array] = []
        for g in range(self.group):
            group = rows[g * self.co : (g + 1) * self.co]
            for co in range(0, self.co, self.co_step):
                for ci in range(0, self.ci, self.ci_step):
                    for kh in range(0, self.rows, self.row_step):
                        part = group[co : co + self.co_step, ci : ci + self.ci_step]
                        part = part[:, :, kh : kh + self.row_step]
                        parts.append(part.transpose(2, 3, 1, 0).ravel())
        return np.concatenate(parts)

    def _banded(self, weights: Array) -> Array:
        """One matrix a row of the kernel: inputs by pixels and output channels, zeros elsewhere."""
        span = (self.band - 1) * self.stride + self.width
        packed = np.zeros((self.rows, span, self.ci, self.band, self.co), weights.dtype)
        for pixel in range(self.band):
            first = pixel * self.stride
            packed[:, first : first + self.width, :, pixel] = weights.transpose(2, 3, 1, 0)
        return packed.ravel()

    @property
    def banded_size(self) -> int:
        """Elements of a tensor whose pixels are banded."""
        span = (self.band - 1) * self.stride + self.width
        return self.rows * span * self.ci * self.band * self.co

    def count(self, e: Emitter, spans: Spans) -> Value:
        """Elements of a tile's segment."""
        positions = e.multiply(spans.of("kh"), self.width)
        channels = e.multiply(spans.of(self.channel), spans.of("ci"))
        return e.multiply(e.multiply(channels, positions), spans.of("g"))

    def address(self, e: Emitter, spans: Spans) -> Value:
        """Bytes from the tensor's start to a tile's segment."""
        row = 2 * self.rows * self.width
        offset = e.multiply(spans.start.get("g", 0), row * self.ci * self.co)
        offset = e.add(offset, e.multiply(spans.start.get(self.channel, 0), row * self.ci))
        within = e.multiply(spans.start.get("ci", 0), spans.of(self.channel))
        offset = e.add(offset, e.multiply(within, row))
        above = e.multiply(spans.start.get("kh", 0), 2 * self.width)
        if above == 0:
            return offset
        above = e.multiply(above, spans.of(self.channel))
        return e.add(offset, e.multiply(above, spans.of("ci")))


def segments_of(
    buffer: BufferOp, extents: Mapping[str, int], steps: Mapping[str, int]
) -> Segments | None:
    """The cut of a buffer's tensor; None for one that is no constant, or not cut that way."""
    tensor = buffer.tensor_op
    if tensor.arena is None or tensor.arena.data != WEIGHTS:
        return None
    window = buffer.window.data
    rank = len(window)
    # A depthwise convolution has one dim for the channels of image, kernel and result.
    channel = "co" if "co" in extents or "c" not in extents else "c"
    co = next((a for a, axis in enumerate(window) if channel in axis.dims), None)
    ci = next((a for a, axis in enumerate(window) if "ci" in axis.dims), None)
    positions = int(np.prod([extents.get(dim, 1) for dim in ("kh", "kw")]))
    plain = [Affine((("kh", 1),)), Affine((("kw", 1),))]
    if rank not in (2, 4) or (rank == 4 and list(window[2:]) != plain):
        return None
    if {co, ci} == {0, 1}:
        order = co == 1
    elif co is None and ci is not None:
        # One output channel, or one input channel, may have no dim of its own.
        order = ci == 0
    elif co is not None and ci is None:
        order = co == 1
    else:
        return None
    shape = buffer.tensor_shape
    whole = (shape[1], shape[0]) if order else (shape[0], shape[1])
    sizes = (extents.get("g", 1) * extents.get(channel, 1), extents.get("ci", 1))
    if whole != sizes or (rank == 4 and shape[2] * shape[3] != positions):
        return None
    return Segments(
        extents.get("g", 1),
        extents.get(channel, 1),
        steps.get(channel, extents.get(channel, 1)),
        extents.get("ci", 1),
        steps.get("ci", extents.get("ci", 1)),
        extents.get("kh", 1),
        steps.get("kh", extents.get("kh", 1)),
        extents.get("kw", 1),
        order,
        channel=channel,
    )
