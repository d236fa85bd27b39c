"""Convolution by Winograd's method, on weights that are transformed already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Operation, Type, one
from tilewright.ir import PythonValue, irdl_op_definition, opt_prop_def
from tilewright.numerics import winograd
from tilewright.planning.domain import Affine, Dim, Role, Stage
from tilewright.types import Array, shape_of


@irdl_op_definition
class WinogradConvOp(Operation):
    """A 3x3 convolution of stride 1 in tiles of ``tile`` x ``tile`` outputs.

    Operands are images [n, c, h, w], weights [co, c, tile+2, tile+2] as
    ``numerics.winograd.transform_weights`` makes them, scratch [elements], and perhaps a bias
    [co]. ``pads`` are top, left, bottom, right. float32 only; choose-methods makes it of a conv.
    """

    name = "graph.winograd_conv"
    pads = opt_prop_def()
    tile = opt_prop_def()
    DEFAULTS: ClassVar[Mapping[str, PythonValue | None]] = {"pads": (0, 0, 0, 0), "tile": 4}
    ARITY: ClassVar[tuple[int, int]] = (3, 4)

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, co, oh, ow] with oh = h + top + bottom - 2."""
        self.check_operands(types)
        self.need(not self.is_fixed, "is not defined on fixed point")
        x, u = types[0].get_shape(), types[1].get_shape()
        tile, pads = self.integer("tile", 2, 4), self.integers("pads", 4, 0)
        self.need(tile in winograd.TRANSFORMS, f"there are no tiles of {tile} x {tile}")
        self.need(len(x) == 4 and min(x) >= 1, f"images must have rank 4, have shape {list(x)}")
        self.need(
            len(u) == 4 and u[1:] == (x[1], tile + 2, tile + 2) and u[0] >= 1,
            f"weights of {x[1]} channels must have shape [co, {x[1]}, {tile + 2}, {tile + 2}], "
            f"have {list(u)}",
        )
        self.need(len(types[2].get_shape()) == 1, "scratch must have rank 1")
        self.need(
            len(types) == 3 or types[3].get_shape() == (u[0],), f"bias must have shape [{u[0]}]"
        )
        oh, ow = (x[2 + i] + pads[i] + pads[2 + i] - 2 for i in range(2))
        self.need(oh >= 1 and ow >= 1, "the window exceeds the padded image")
        return self.result_of((x[0], u[0], oh, ow), self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """In float64, rounded once."""
        x, u, _ = arrays[:3]
        result = winograd.conv2d(x, u, self.integers("pads"), self.integer("tile", 2, 4))
        return result if len(arrays) == 3 else result + arrays[3][:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, co, th, tw, r, s | ci, u, v.

        Tile (th, tw) has the outputs (th*T + r, tw*T + s) and the transformed positions (u, v) of
        its inputs (th*T + u - top, tw*T + v - left). Tiles may reach beyond the result.
        """
        tile = self.integer("tile", 2, 4)
        n, ci, _, _ = shape_of(self.inputs[0])
        co, _, inner, _ = shape_of(self.inputs[1])
        _, _, oh, ow = shape_of(self.result)
        top, left, _, _ = self.integers("pads")
        dims = [Dim("n", n), Dim("co", co), Dim("th", -(-oh // tile)), Dim("tw", -(-ow // tile))]
        dims += [Dim("r", tile), Dim("s", tile)]
        dims += [Dim(name, e, "reduction") for name, e in (("ci", ci), ("u", inner), ("v", inner))]
        rows = Affine((("th", tile), ("u", 1)), -top)
        columns = Affine((("tw", tile), ("v", 1)), -left)
        accesses: list[tuple[Sequence[Affine], Role]] = [
            ((one("n"), one("ci"), rows, columns), "input"),
            ((one("co"), one("ci"), one("u"), one("v")), "weight"),
            ((Affine(),), "scratch"),
            ((one("co"),), "bias"),
        ]
        target = (
            one("n"),
            one("co"),
            Affine((("th", tile), ("r", 1))),
            Affine((("tw", tile), ("s", 1))),
        )
        return self.make_stage(dims, operands, accesses[: len(self.inputs)], result, target)
