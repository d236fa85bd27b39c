"""Depthwise convolutions: a product with a diagonal for each block of channels and tap.

Weights come as constants, [c1][kh][kw] fractals that are diagonals: 16 x 16 of which 16 are not
zero. So the cube computes as for a convolution of 16 to 16 channels, of which a 16th is of use. Of
integers of 8 bits a block has 32 channels, of which a fractal gives 16: two for each block and tap,
which the cube takes as long for. Their last block may end with 16 channels that results have not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.codegen.nest.value import least, more, select
from tilewright.ir.types import Array
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.lowering.images import Convolutions
from tilewright.targets.ascend.lowering.nest import Span, Spans, first_of
from tilewright.targets.ascend.lowering.walk import Home
from tilewright.targets.ascend.machine import BLOCK, CUBE, FRACTAL
from tilewright.targets.ascend.program import Barrier, Loop, Place, Statement, Tensor
from tilewright.tile.dialect import BufferOp, ComputeOp, TensorOp


def diagonals(weights: Array) -> Array:
    """Weights [c, 1, kh, kw] as fractals, of int8 or of halves."""
    channels, _, height, width = weights.shape
    kind = np.int8 if weights.dtype == np.int8 else np.float16
    block = BLOCK // np.dtype(kind).itemsize
    count = padded(channels, block) // CUBE
    fractals = np.zeros((count, height, width, CUBE, block), kind)
    for channel in range(channels):
        lanes = channel % CUBE, channel % block
        fractals[channel // CUBE, :, :, *lanes] = weights[channel, 0]
    return fractals


class Depthwise(Convolutions):
    """The forms of a depthwise convolution."""

    result = "c"
    blocked_dims = ("c",)

    def block(self, dim: str) -> int:
        """Channels of a block of the image."""
        return super().block("ci")

    def spans(self, spans: Spans) -> dict[str, Span]:
        """Channels are those of the image, and of the result what it has of them."""
        named = self.own(spans)
        channels = named["c"]
        results, whole = channels, padded(self.exact["c"])
        if whole % self.block("c"):
            left = whole - channels.start
            results = replace(channels, size=least(channels.size, left))
        return {**named, "ci": channels, "co": results}

    def main_bytes(self, op: TensorOp) -> int:
        """Bytes of a tensor in main memory; weights come as fractals."""
        if op.role.data != "weight":
            return super().main_bytes(op)
        fractals = self.channels * self.block("c") // CUBE
        return fractals * self.exact["kh"] * self.exact["kw"] * FRACTAL

    def bytes(self, op: BufferOp, spans: Spans) -> int:
        """Bytes of a buffer; weights are of 16 channels each, what L0A holds of one block."""
        named = self.own(spans)
        if op.get("role") == "weight":
            return named["c"].most // CUBE * named["kh"].most * named["kw"].most * FRACTAL
        if op.get("role") == "input" and op.memory == "ca":
            return named["c"].most // self.block("c") * self._most(named) * BLOCK
        return super().bytes(op, spans)

    def _weights(self, home: Home, outer: Home | Tensor) -> list[Statement]:
        channels, kh, kw = (self.own(home.spans)[dim] for dim in ("c", "kh", "kw"))
        count, window = channels.size // CUBE, kh.most * kw.most
        kernel = self.exact["kh"], self.exact["kw"]
        taps = kernel[0] * kernel[1]
        blocks = FRACTAL // BLOCK
        if isinstance(outer, Tensor):
            at = (channels.start // CUBE) * (taps * FRACTAL)
            source, target = Place(outer, at), Place(home.buffer)
            if window == taps:
                return [isa.copy(target, source, count, taps * blocks)]
            p, q = Loop("p", kh.size), Loop("q", kw.size)
            tap = (kh.start + p.variable) * kernel[1] + (kw.start + q.variable)
            to = p.variable * kw.most + q.variable
            gaps = (taps - 1) * blocks, (window - 1) * blocks
            ends = target.at(to * FRACTAL), source.at(tap * FRACTAL)
            q.body.append(isa.copy(*ends, count, blocks, *gaps))
            p.body.append(q)
            return [p]
        large, spans = self.own(outer.spans), self.own(home.spans)
        window = large["kh"].most * large["kw"].most
        block = (channels.start - large["c"].start) // CUBE
        row, column = (spans[d].start - large[d].start for d in ("kh", "kw"))
        at = (block * window + (row * large["kw"].most + column)) * FRACTAL
        # One fractal for each 16 channels, taps apart in L1.
        return [
            isa.load(Place(home.buffer), Place(outer.buffer, at), count, window, transpose=False)
        ]

    def _taps(self, home: Home, outer: Home) -> list[Statement]:
        spans, large = self.spans(home.spans), self.spans(outer.spans)
        feature_map, corner = self._map(outer, spans)
        _, whole = self._positions(spans)
        i = Loop("i", spans["c"].size // self.block("c"))
        first = (spans["c"].start - large["c"].start) // self.block("c")
        channel = first + i.variable
        target = Place(home.buffer, i.variable * whole * BLOCK)
        tap = spans["kh"].start - large["kh"].start, spans["kw"].start
        i.body.append(isa.img2col(target, feature_map, tap, corner, channel, whole // 16, 1))
        return self._filled(feature_map, i)

    def compute(self, op: ComputeOp, spans: Spans, loops: list[Loop]) -> list[Statement]:
        """A product for each block of channels. Where these are so small that sums need a barrier
        from one tap to the next, one before all blocks suffices."""
        left, right, sums = (self.homes[v] for v in (*op.stages[0].inputs[:2], op.output))
        spans = self.own(spans)
        _, whole = self._positions(spans)
        block = self.block("c")
        i = Loop("i", spans["c"].size // block)
        i.body.append(
            isa.mad(
                Place(sums.buffer, i.variable * whole * (block * 4)),
                Place(left.buffer, i.variable * whole * BLOCK),
                Place(right.buffer, i.variable * (block // CUBE * FRACTAL)),
                whole,
                block,
                block,
                first_of(loops),
                int(self.core.barrier_blocks),
            )
        )
        few = more(int(self.core.barrier_blocks) * CUBE * CUBE, whole * block)
        close = Loop("close", select(few, 1, 0), [Barrier("M")])
        return [close, i] if loops and i.count != 1 else [i]
