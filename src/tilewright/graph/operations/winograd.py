"""Convolution by Winograd's method, on weights that are transformed already or are yet to be.

Or in three steps: tiles of images are transformed, multiplied, and transformed back. The products
between are a convolution of windows of one point with as many groups as a transformed tile has
points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.graph.operations.convolution import factors, product_element
from tilewright.graph.operations.windows import check_images, check_scratch, windowed
from tilewright.ir import f32
from tilewright.ir.types import Array, shape_of
from tilewright.memory.alignment import ceil_div
from tilewright.numerics import winograd
from tilewright.planning.domain import Role, Stage


class WinogradOperation(Operation):
    """A step of Winograd's method, or all: tiles of ``tile`` x ``tile`` outputs, windows of
    ``taps`` x ``taps``; ``pads`` are top, left, bottom, right of the convolution."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Extents of the tile and of the window; raises VerifyException for sizes that have no
        transform."""
        tile, taps = self.integer("tile", 2, 6), self.integer("taps", 3, 5)
        known = (tile, taps) in winograd.TRANSFORMS
        self.need(known, f"there are no tiles of {tile} x {tile} for windows of {taps} x {taps}")
        return tile, taps

    @property
    def inner(self) -> int:
        """Extent of a transformed tile."""
        tile, taps = self.sizes
        return tile + taps - 1

    def convolved(self, x: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of the convolution's result for images of shape ``x``; checked."""
        check_images(self, x)
        taps = self.sizes[1]
        rows, columns = windowed(x[2:], (taps, taps), (1, 1), self.integers("pads", 4, 0), (1, 1))
        self.need(rows >= 1 and columns >= 1, "the window exceeds the padded image")
        return rows, columns


@definition
class WinogradConvOp(WinogradOperation):
    """A convolution of stride 1, windows of ``taps`` x ``taps``, in tiles of ``tile`` x ``tile``.

    Operands are images [n, c, h, w], weights, scratch [elements], and perhaps a bias [co]. Weights
    are [co, c/group, taps, taps] and transformed as the kernel runs, or [co, c/group, inner, inner]
    as ``numerics.winograd.transform_weights`` makes them, inner = tile + taps - 1. ``pads`` are
    top, left, bottom, right. Images are float32; weights that are not transformed yet may have 16
    bits, as a conv's. Choose-methods makes it of a conv.
    """

    name = "graph.winograd_conv"
    DEFAULTS: ClassVar[Attributes] = {"pads": (0, 0, 0, 0), "tile": 4, "taps": 3, "group": 1}
    ARITY: ClassVar[tuple[int, int]] = (3, 4)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "scratch", "bias")
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, co, oh, ow] with oh = h + top + bottom - taps + 1."""
        x, u = types[0].get_shape(), types[1].get_shape()
        (_, taps), inner, group = self.sizes, self.inner, self.integer("group", 1, 2**24)
        oh, ow = self.convolved(x)
        self.need(x[1] % group == 0, f"{x[1]} channels do not divide into {group} groups")
        each = x[1] // group
        self.need(
            len(u) == 4
            and u[1] == each
            and u[2:] in ((taps, taps), (inner, inner))
            and u[0] >= 1
            and u[0] % group == 0,
            f"weights of {each} channels must have shape [co, {each}, {taps}, {taps}], or "
            f"[co, {each}, {inner}, {inner}] if they are transformed, have {list(u)}",
        )
        check_scratch(self, types, u[0])
        plain, element = u[2:] == (taps, taps), types[1].element_type
        self.need(types[0].element_type == f32, "takes images of float32")
        self.need(plain or element == f32, "takes transformed weights of float32")
        return self.result_of((x[0], u[0], oh, ow), product_element(self, types))

    def evaluate(self, *arrays: Array) -> Array:
        """In float64, rounded once."""
        arrays = tuple(factors(arrays))
        x, u, _ = arrays[:3]
        group = self.integer("group", 1, 2**24)
        result = winograd.conv2d(x, u, self.integers("pads"), *self.sizes, group)
        return result if len(arrays) == 3 else result + arrays[3][:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, [g], co, th, tw, r, s | ci, u, v, [kh, kw].

        Tile (th, tw) has the outputs (th*T + r, tw*T + s) and the transformed positions (u, v) of
        its inputs (th*T + u - top, tw*T + v - left). Tiles may reach beyond the result. Weights
        that are yet to be transformed have the taps kh and kw.
        """
        tile, taps = self.sizes
        inner, group = self.inner, self.integer("group", 1, 2**24)
        co, ci, size, _ = shape_of(self.inputs[1])
        _, _, oh, ow = shape_of(self.result)
        top, left, _, _ = self.integers("pads")
        extents = {"th": ceil_div(oh, tile), "tw": ceil_div(ow, tile), "r": tile, "s": tile}
        extents |= {"u": inner, "v": inner}
        source, target, position = "ci", "co", "kh kw" if size == taps else "u v"
        if group > 1:
            source, target = f"g*{ci}+ci", f"g*{co // group}+co"
            extents |= {"g": group, "co": co // group}
        image = f"n {source} th*{tile}+u-{top} tw*{tile}+v-{left}"
        pixels = f"n {target} th*{tile}+r tw*{tile}+s"
        notation = f"{image}, {target} ci {position}, 0, {target} -> {pixels}"
        order = "n g co th tw r s ci u v kh kw"
        return self.nest(operands, result, notation, extents, order=order)


class WinogradStage(WinogradOperation):
    """A transform that is a kernel of its own."""

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
        x = types[0].get_shape()
        self.need(types[0].element_type == f32, "takes images of float32")
        counts = tuple(ceil_div(extent, self.sizes[0]) for extent in self.convolved(x))
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
    DEFAULTS: ClassVar[Attributes] = {"extents": STATED, "tile": 4, "taps": 3}
    ARITY: ClassVar[tuple[int, int]] = (1, 2)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "bias")

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, c, oh, ow], ``extents`` being oh and ow."""
        m, (tile, _) = types[0].get_shape(), self.sizes
        extents = self.integers("extents", 2, 1)
        counts = tuple(ceil_div(extent, tile) for extent in extents)
        self.need(all(kind.element_type == f32 for kind in types), "takes float32")
        self.need(
            len(m) == 5 and m[0] == self.inner**2 and min(m) >= 1 and m[3:] == counts,
            f"tiles must have shape [{self.inner**2}, c, n, {counts[0]}, {counts[1]}], have "
            f"{list(m)}",
        )
        self.need_shapes({"bias": m[1:2]}, types[1:])
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
