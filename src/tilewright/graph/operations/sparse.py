"""Products with weights that are compressed by step indexing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from tilewright.graph.operation import Attributes, Type
from tilewright.graph.operations.base import definition
from tilewright.graph.operations.convolution import product_element
from tilewright.graph.operations.windows import WindowOperation
from tilewright.ir.types import Array, shape_of
from tilewright.memory.alignment import ceil_div
from tilewright.numerics import fixed, sparse
from tilewright.planning.domain import Role, Stage


@definition
class SparseProductOp(WindowOperation):
    """A convolution of images [n, ci, h, w], or a product of rows [n, ci], with few weights.

    Operands are the images or rows, streams [blocks, segments, words] as ``numerics.sparse.encode``
    makes them, and perhaps a bias [co]; all in fixed point, as a conv's. ``channels`` is co,
    ``kernel`` the window, ``lanes`` the neurons of a block, ``stream_cycles`` the cycles that as
    many elements take for a pixel (numerics.sparse.StreamCycles: alone, each, lead), ``kept`` the
    weights that are not 0. compress-weights makes it of conv and matmul.
    """

    name = "graph.sparse_product"
    DEFAULTS: ClassVar[Attributes] = {
        "channels": 1,
        "kernel": (1, 1),
        "lanes": 16,
        "stream_cycles": (1, 1, 1),
        "kept": 0,
        **WindowOperation.DEFAULTS,
    }
    ARITY: ClassVar[tuple[int, int]] = (2, 3)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "bias")

    @property
    def how(self) -> str:
        """The number of weights that compression left, as a text."""
        x, streams = shape_of(self.inputs[0]), shape_of(self.inputs[1])
        taps = prod(self.integers("kernel", 2, 1))
        whole = self.integer("channels", 1, 2**24) * x[1] * taps
        kept = self.integer("kept", 0, 2**31)
        return (
            f"weights compressed: {100 * kept / whole:.1f} % kept, "
            f"{2 * prod(streams):,} bytes for {2 * whole:,}"
        )

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, co, oh, ow] as a conv's, or [n, co]."""
        x, streams = types[0].get_shape(), types[1].get_shape()
        self.need(len(x) in (2, 4) and min(x) >= 1, f"images or rows have shape {list(x)}")
        self.need(len(streams) == 3 and min(streams) >= 1, f"streams have shape {list(streams)}")
        channels, lanes = self.integer("channels", 1, 2**24), self.integer("lanes", 1, 2**10)
        cycles = self.get("stream_cycles", (1, 1, 1))
        self.need(
            isinstance(cycles, tuple)
            and len(cycles) == 3
            and all(type(part) is int and 0 < part < 2**31 for part in cycles),
            f"stream_cycles must be three positive integers, is {cycles}",
        )
        self.need(
            streams[0] == ceil_div(channels, lanes) and x[1] % streams[1] == 0,
            f"streams {list(streams)} are not those of {x[1]} by {channels} channels",
        )
        self.need_shapes({"bias": (channels,)}, types[2:])
        kernel, _ = self.integers("kernel", 2, 1), self.slide
        element = product_element(self, types)
        if len(x) == 2:
            self.need(kernel == (1, 1), "rows have no window")
            return self.result_of((x[0], channels), element)
        oh, ow = self.slid(x, kernel)
        return self.result_of((x[0], channels, oh, ow), element)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, exact modulo 2**32."""
        x, streams = arrays[:2]
        channels, lanes = self.integer("channels", 1, 2**24), self.integer("lanes", 1, 2**10)
        kh, kw = self.integers("kernel", 2, 1)
        segment = x.shape[1] // streams.shape[1]
        w = sparse.dense(streams, channels, (kh, kw), segment, lanes)
        bias = arrays[2] if len(arrays) == 3 else None
        if x.ndim == 2:
            return fixed.matmul(x, w[:, :, 0, 0].T, bias)
        return fixed.conv2d(x, w, bias, *self.slide)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, cb, cl, [oh, ow] | cs, cc, [kh, kw], e, alone, each, lead.

        Output channel ``cb*lanes + cl``, input channel ``cs*segment + cc``; ``e`` are the words of
        a stream, the last three its cycles in parts of one (``sparse.SHARE``): all four are kept
        whole. The last block may reach beyond the channels.
        """
        x = shape_of(self.inputs[0])
        blocks, segments, _ = shape_of(self.inputs[1])
        lanes, segment = self.integer("lanes", 1, 2**10), x[1] // segments
        extents = {"cb": blocks, "cl": lanes, "cs": segments, "cc": segment}
        target, source, pixel, image = f"cb*{lanes}+cl", f"cs*{segment}+cc", "", ""
        if len(x) == 4:
            pixel, image = self.pixel, "oh ow"
            extents |= dict(zip(("kh", "kw"), self.integers("kernel", 2, 1), strict=True))
        extents |= zip(("alone", "each", "lead"), self.get("stream_cycles", (1, 1, 1)), strict=True)
        notation = f"n {source} {pixel}, cb cs e, {target} -> n {target} {image}"
        return self.nest(operands, result, notation, extents)
