"""The operators Gemm, MatMul and Det."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.moves import cut
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

_SCALED = "graph.dequantise_linear"
"""The operation that results in a bias that is kept as integers."""


def gemm(at: Lowering) -> SSAValue:
    """alpha * a @ b + beta * c; constant factors are folded into constant operands."""
    for index in (0, 1):
        if len(at.shape(index)) != 2:
            raise at.misfit(f"its input {index} has shape {list(at.shape(index))}, not rank 2")
    b = scaled(at, 1, at.number("alpha", 1.0))
    flags = {"transpose_a": bool(at.integer("transA")), "transpose_b": bool(at.integer("transB"))}
    a = at.tensor(0)
    rows = at.shape(0)[1 if flags["transpose_a"] else 0]
    columns = at.shape(1)[0 if flags["transpose_b"] else 1]
    beta = at.number("beta", 1.0)
    if not at.has(2) or beta == 0:
        return at.emit("matmul", a, b, **flags)
    shape = at.shape(2)
    if len(shape) > 2 or any(
        have not in (1, want) for have, want in zip(shape[::-1], (columns, rows), strict=False)
    ):
        raise at.misfit(f"c of shape {list(shape)} does not broadcast to {[rows, columns]}")
    c = at.operand(2)
    if isinstance(c, Constant) and math.prod(shape[:-1]) == 1 and c.array.dtype == np.float32:
        # One row for all: a bias.
        row = np.broadcast_to(c.array.reshape(-1), (columns,)) * np.float32(beta)
        return at.emit("matmul", a, b, at.weight(row, c.name), **flags)
    if shape == (columns,) and beta == 1 and getattr(at.tensor(2).owner, "name", "") == _SCALED:
        return at.emit("matmul", a, b, at.tensor(2), **flags)
    return at.emit("add", at.emit("matmul", a, b, **flags), scaled(at, 2, beta))


def scaled(at: Lowering, index: int, factor: float) -> SSAValue:
    """An operand times a number; the product of constants is taken at once."""
    value = at.operand(index)
    if factor == 1:
        return at.tensor(index)
    if isinstance(value, Constant) and value.array.dtype == np.float32:
        with np.errstate(all="ignore"):
            return at.weight(value.array * np.float32(factor), value.name)
    number = at.weight(np.array(factor, np.float32), f"{at.node.name}.factor")
    return at.emit("mul", at.tensor(index), number)


def matmul(at: Lowering) -> SSAValue:
    """NumPy's matmul: leading axes broadcast; a vector counts as one row or one column."""
    left, right = at.shape(0), at.shape(1)
    if not left or not right:
        raise at.misfit("it takes no scalars")
    a = at.tensor(0) if len(left) > 1 else _shaped(at, 0, (1, *left))
    b = at.tensor(1) if len(right) > 1 else _shaped(at, 1, (*right, 1))
    return _without(at, at.emit("matmul", a, b), len(left), len(right))


def product(at: Lowering, a: SSAValue, b: SSAValue) -> SSAValue:
    """Emit the product of two values, of which a vector counts as one row or one column."""
    left, right = shape_of(a), shape_of(b)
    if not left or not right:
        raise at.misfit("it takes no scalars")
    a = a if len(left) > 1 else at.reshape(a, (1, *left))
    b = b if len(right) > 1 else at.reshape(b, (*right, 1))
    return _without(at, at.emit("matmul", a, b), len(left), len(right))


def _without(at: Lowering, result: SSAValue, left: int, right: int) -> SSAValue:
    """Drop the row or the column of a product that an operand of rank 1 has added."""
    shape = list(shape_of(result))
    if left == 1:
        del shape[-2]
    if right == 1:
        del shape[-1]
    return at.reshape(result, shape)


def _shaped(at: Lowering, index: int, shape: Sequence[int]) -> SSAValue:
    """An operand in another shape; constants are reshaped as they are kept."""
    value = at.operand(index)
    if isinstance(value, Constant):
        return at.weight(value.array.reshape(shape), value.name)
    return at.reshape(value, shape)


def determinant(at: Lowering) -> Value:
    """Laplace's expansion by rows, every minor once: n 2^(n-1) products."""
    shape = at.shape(0)
    size = shape[-1] if shape else 0
    if not 1 <= size <= 8 or shape[-2:] != (size, size):
        raise at.misfit(f"determinants of {list(shape[-2:])} are not computed; at most 8 x 8")
    flat = at.reshape(at.tensor(0), (math.prod(shape[:-2]), size * size))

    def element(row: int, column: int) -> SSAValue:
        place = row * size + column
        return cut(at, flat, {1: (place, place + 1, 1)})

    minors: dict[tuple[int, ...], SSAValue] = {(c,): element(size - 1, c) for c in range(size)}
    for count in range(2, size + 1):
        row = size - count
        larger: dict[tuple[int, ...], SSAValue] = {}
        for columns in itertools.combinations(range(size), count):
            total: SSAValue | None = None
            for i, column in enumerate(columns):
                rest = columns[:i] + columns[i + 1 :]
                term = at.emit("mul", element(row, column), minors[rest])
                sign = "sub" if i % 2 else "add"
                total = term if total is None else at.emit(sign, total, term)
            assert total is not None
            larger[columns] = total
        minors = larger
    return at.reshape(minors[tuple(range(size))], shape[:-2])
