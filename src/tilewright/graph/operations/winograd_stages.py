"""Winograd's method in three steps: tiles of images are transformed, multiplied, and transformed
back. The products between are a convolution of windows of one point with as many groups as a
transformed tile has points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Attributes, Operation, Type, definition
from tilewright.graph.operations.windows import check_images
from tilewright.ir import f32, prop_def
from tilewright.ir.types import Array
from tilewright.memory.alignment import ceil_div
from tilewright.numerics import winograd
from tilewright.planning.domain import Role, Stage


class WinogradStage(Operation):
    """A transform of Winograd's method: tiles of ``tile`` x ``tile`` outputs, windows of ``taps`` x
    ``taps``."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Extents of the tile and of the window; raises VerifyException if there are none such."""
        tile, taps = self.integer("tile", 2, 6), self.integer("taps", 3, 5)
        known = (tile, taps) in winograd.TRANSFORMS
        self.need(known, f"there are no tiles of {tile} x {tile} for windows of {taps} x {taps}")
        return tile, taps

    @property
    def inner(self) -> int:
        """Extent of a transformed tile."""
        tile, taps = self.sizes
        return tile + taps - 1

    @property
    def how(self) -> str:
        """Name the method and its sizes."""
        tile, taps = self.sizes
        return f"Winograd's method, F({tile}x{tile}, {taps}x{taps})"


@definition
class WinogradInputOp(WinogradStage):
    """Transformed tiles of images: B^T d B of each tile d, as [points, c, n, th, tw].

    The operand is [n, c, h, w] float32; ``pads`` are top, left, bottom, right of the convolution.
    Point u * inner + v of the tile at (i, j) depends on the inputs (i*tile + k - top,
    j*tile + l - left) for all k and l below inner = tile + taps - 1.
    """

    name = "graph.winograd_input"
    DEFAULTS: ClassVar[Attributes] = {"pads": (0, 0, 0, 0), "tile": 4, "taps": 3}

    def infer(self, types: Sequence[Type]) -> Type:
        """[inner * inner, c, n, th, tw]: as many tiles as cover the convolution's result."""
        self.check_operands(types)
        x = types[0].get_shape()
        (tile, taps), pads = self.sizes, self.integers("pads", 4, 0)
        self.need(types[0].element_type == f32, "takes images of float32")
        check_images(self, x)
        oh, ow = (x[2 + i] + pads[i] + pads[2 + i] - taps + 1 for i in range(2))
        self.need(oh >= 1 and ow >= 1, "the window exceeds the padded image")
        counts = (ceil_div(oh, tile), ceil_div(ow, tile))
        return self.result_of((self.inner**2, x[1], x[0], *counts), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """In float64, rounded once."""
        return winograd.transform_inputs(arrays[0], self.integers("pads"), *self.sizes)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims p, c, n, th, tw | kh, kw."""
        (tile, _), (top, left, _, _) = self.sizes, self.integers("pads")
        notation = f"n c th*{tile}+kh-{top} tw*{tile}+kw-{left} -> p c n th tw"
        return self.nest(operands, result, notation, {"kh": self.inner, "kw": self.inner})


@definition
class WinogradOutputOp(WinogradStage):
    """Images from the products of transformed tiles: A^T m A of each m, and perhaps a bias.

    Operands are [points, c, n, th, tw] and [c], float32; the result is [n, c, *extents]. The last
    tiles of a row or column may reach beyond it.
    """

    name = "graph.winograd_output"
    extents = prop_def()
    DEFAULTS: ClassVar[Attributes] = {"extents": None, "tile": 4, "taps": 3}
    ARITY: ClassVar[tuple[int, int]] = (1, 2)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "bias")

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, c, oh, ow], ``extents`` being oh and ow."""
        self.check_operands(types)
        m, (tile, _) = types[0].get_shape(), self.sizes
        extents = self.integers("extents", 2, 1)
        counts = tuple(ceil_div(extent, tile) for extent in extents)
        self.need(all(kind.element_type == f32 for kind in types), "takes float32")
        self.need(
            len(m) == 5 and m[0] == self.inner**2 and min(m) >= 1 and m[3:] == counts,
            f"tiles must have shape [{self.inner**2}, c, n, {counts[0]}, {counts[1]}], have "
            f"{list(m)}",
        )
        self.need(
            len(types) == 1 or types[1].get_shape() == (m[1],), f"bias must have shape [{m[1]}]"
        )
        return self.result_of((m[2], m[1], *extents), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """In float64, rounded once; then the bias."""
        extents = self.integers("extents")
        result = winograd.transform_outputs(arrays[0], extents, *self.sizes)
        return result if len(arrays) == 1 else result + arrays[1][:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, c, th, tw, r, s | p: tile (th, tw) has the outputs (th*T + r, tw*T + s)."""
        tile, _ = self.sizes
        notation = f"p c n th tw, c -> n c th*{tile}+r tw*{tile}+s"
        extents = {"r": tile, "s": tile}
        return self.nest(operands, result, notation, extents, order="n c th tw r s p")
