"""Products with matrices that stay in blocks of small integers (numerics/blocks.py).

The pass expand-blocks makes floats of them for machines that have no such product.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.graph.operations.indexing import wrapped
from tilewright.ir import f32, i32
from tilewright.ir.types import Array, element_name, shape_of
from tilewright.numerics import blocks
from tilewright.planning.domain import Role, Stage


@definition
class BlockRoundOp(Operation):
    """Rows [..., k] of float32 in blocks of integers: words [..., k / block, block / 2 + 2]."""

    name = "graph.block_round"
    DEFAULTS: ClassVar[Attributes] = {"block": STATED}
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of the words."""
        shape, block = types[0].get_shape(), self.integer("block", 8, 256)
        self.need(types[0].element_type == f32, "takes float32")
        self.need(
            len(shape) >= 2 and shape[-1] > 0 and shape[-1] % block == block % 8 == 0,
            f"{list(shape)} has no rows in blocks of {block}",
        )
        return self.result_of((*shape[:-1], prod(shape[-1:]) // block, block // 2 + 2), i32)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, in float32."""
        return blocks.rounded(arrays[0], self.integer("block", 8, 256))

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims b0.., m, s, w | k."""
        rows = _rows(len(shape_of(self.result)) - 2)
        return self.nest(operands, result, f"{rows} k -> {rows} s w")


def _rows(count: int) -> str:
    """Dims of ``count`` axes of rows, in index notation."""
    return " ".join([*(f"b{axis}" for axis in range(count - 1)), "m"])


class BlockOperation(Operation):
    """An operation on a matrix [n, k] in blocks: codes as bytes, and scales as they lie.

    Minima follow the scales of each block, unless ``zero`` is at least 0: it is what codes have for
    the number 0.
    """

    DEFAULTS: ClassVar[Attributes] = {"bits": STATED, "block": STATED, "zero": -1}
    FIXED_POINT: ClassVar[bool] = False

    def matrix(self, codes: Type, scales: Type) -> tuple[int, int]:
        """Rows n and columns k of the matrix, checked."""
        bits, block = self.integer("bits", 2, 8), self.integer("block", 8, 256)
        minima = self.integer("zero", -1, 255) < 0
        shape = codes.get_shape()
        self.need(bits in (2, 4, 8) and len(shape) == 2, "takes rows of 2, 4 or 8 bits a number")
        columns = shape[1] * 8 // bits
        self.need(
            shape[0] % blocks.GROUP == 0 and columns % block == block % 16 == 0 < columns,
            f"{list(shape)} bytes are no groups of rows in blocks of {block}",
        )
        wanted = (shape[0], columns // block * (1 + minima))
        self.need_shapes({"scales": wanted}, [scales])
        self.need(element_name(codes.element_type) == "uint8", "takes codes in bytes")
        self.need_float(scales)
        return shape[0], columns

    def weight(self, codes: Array, scales: Array) -> blocks.Blocks:
        """The matrix of arrays."""
        bits, block = (self.integer(name, 1, 256) for name in ("bits", "block"))
        zero = self.integer("zero", -1, 255)
        return blocks.unpacked(codes, scales, bits, block, None if zero < 0 else zero)


@definition
class BlockMatMulOp(BlockOperation):
    """x @ w.T in float32, for rows x as ``block_round`` gives them and w [n, k] in blocks.

    Operands x, codes, scales. Sums of a block are exact.
    """

    name = "graph.block_matmul"
    ARITY: ClassVar[tuple[int, int]] = (3, 3)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "weight")

    def infer(self, types: Sequence[Type]) -> Type:
        """[..., n]."""
        n, k = self.matrix(types[1], types[2])
        x, block = types[0].get_shape(), self.integer("block", 8, 256)
        self.need(
            len(x) >= 3 and x[-2:] == (k // block, block // 2 + 2) and types[0].element_type == i32,
            f"rows {list(x)} are not those of {k} numbers in blocks of {block}",
        )
        return self.result_of((*x[:-2], n), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """In float64 beyond a block, rounded once."""
        return blocks.product(arrays[0], self.weight(*arrays[1:]))

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims b0.., m, co | s, w, j (bytes of codes), z (scales)."""
        rows = _rows(len(shape_of(self.result)) - 1)
        return self.nest(operands, result, f"{rows} s w, co j, co z -> {rows} co")


@definition
class BlockGatherOp(BlockOperation):
    """The rows of a matrix in blocks that indices [m] name, in float32: [m, k].

    Operands codes, scales, indices, which are treated as those of ``gather``.
    """

    name = "graph.block_gather"
    ARITY: ClassVar[tuple[int, int]] = (3, 3)
    ROLES: ClassVar[tuple[Role, ...]] = ("weight", "weight", "input")

    def infer(self, types: Sequence[Type]) -> Type:
        """[m, k]."""
        _, k = self.matrix(types[0], types[1])
        places = types[2].get_shape()
        self.need_integer(types[2])
        self.need(len(places) == 1, f"takes a list of indices, found {list(places)}")
        return self.result_of((places[0], k), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """In float32."""
        weight = self.weight(*arrays[:2])
        taken = wrapped(arrays[2], len(weight.codes))
        minima = None if weight.minima is None else weight.minima[taken]
        part = blocks.Blocks(
            weight.codes[taken], weight.scales[taken], minima, weight.bits, weight.zero
        )
        return part.rows()

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims m, k | v (rows), j, z."""
        return self.nest(operands, result, "v j, v z, m -> m k")
