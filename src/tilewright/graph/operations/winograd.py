"""Convolution by Winograd's method, on weights that are transformed already or are yet to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Attributes, Operation, Type, definition
from tilewright.graph.operations.convolution import factors, product_element
from tilewright.graph.operations.windows import check_images, check_scratch
from tilewright.ir import f32
from tilewright.ir.types import Array, shape_of
from tilewright.memory.alignment import ceil_div
from tilewright.numerics import winograd
from tilewright.planning.domain import Role, Stage


@definition
class WinogradConvOp(Operation):
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

    @property
    def sizes(self) -> tuple[int, int]:
        """Extents of the tile and of the window."""
        return self.integer("tile", 2, 6), self.integer("taps", 3, 5)

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, co, oh, ow] with oh = h + top + bottom - taps + 1."""
        self.check_operands(types)
        x, u = types[0].get_shape(), types[1].get_shape()
        (tile, taps), pads = self.sizes, self.integers("pads", 4, 0)
        group, inner = self.integer("group", 1, 2**24), tile + taps - 1
        known = (tile, taps) in winograd.TRANSFORMS
        self.need(known, f"there are no tiles of {tile} x {tile} for windows of {taps} x {taps}")
        check_images(self, x)
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
        oh, ow = (x[2 + i] + pads[i] + pads[2 + i] - taps + 1 for i in range(2))
        self.need(oh >= 1 and ow >= 1, "the window exceeds the padded image")
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
        inner, group = tile + taps - 1, self.integer("group", 1, 2**24)
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
