"""The operation for matrix products, with batch dims and a bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import broadcast_shape, definition
from tilewright.graph.operations.convolution import factors, product_element
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import fixed, reference
from tilewright.planning.domain import Role, Stage


@definition
class MatMulOp(Operation):
    """a @ b over the last two axes, leading axes broadcast, plus an optional broadcast bias.

    ``transpose_a`` and ``transpose_b`` swap the last two axes of an operand first. 8-bit integers
    give int32, exact modulo 2**32, and take a bias of int32. 16-bit floats as b give float32, by
    a of float32 or of the same elements.
    """

    name = "graph.matmul"
    DEFAULTS: ClassVar[Attributes] = {"transpose_a": False, "transpose_b": False}
    ARITY: ClassVar[tuple[int, int]] = (2, 3)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "bias")

    @property
    def transposed(self) -> tuple[bool, bool]:
        """Two flags, true if a or b are transposed."""
        return bool(self.get("transpose_a", False)), bool(self.get("transpose_b", False))

    def infer(self, types: Sequence[Type]) -> Type:
        """[batch..., m, n] from [batch..., m, k] and [batch..., k, n]."""
        a, b = types[0].get_shape(), types[1].get_shape()
        self.need(
            min(len(a), len(b)) >= 2, f"operands need rank 2 at least, have {list(a)}, {list(b)}"
        )
        for name in ("transpose_a", "transpose_b"):
            self.need(self.get(name, False) in (0, 1), f"{name} must be true or false")
        m, k = a[-2:][::-1] if self.transposed[0] else a[-2:]
        rows, n = b[-2:][::-1] if self.transposed[1] else b[-2:]
        self.need(k == rows, f"inner extents {k} and {rows} of {list(a)} and {list(b)} differ")
        self.need(k >= 1, "the inner extent is 0")
        shape = (*broadcast_shape(self, [a[:-2], b[:-2]]), m, n)
        if len(types) == 3:
            bias = types[2].get_shape()
            self.need(
                len(bias) <= len(shape) and broadcast_shape(self, [shape, bias]) == shape,
                f"bias {list(bias)} does not broadcast to {list(shape)}",
            )
        return self.result_of(shape, product_element(self, types))

    def evaluate(self, *arrays: Array) -> Array:
        """Sums of float32 are rounded once; fixed point is exact modulo 2**32."""
        arrays = tuple(factors(arrays))
        a, b = (
            np.swapaxes(array, -1, -2) if swap else array
            for array, swap in zip(arrays[:2], self.transposed, strict=True)
        )
        bias = arrays[2] if len(arrays) == 3 else None
        if self.is_fixed:
            return fixed.matmul(a, b, bias)
        if a.dtype.itemsize == 1:
            result = reference.matmul(a, b).astype(np.int32)
        else:
            # Integers wrap around in their own type.
            result = reference.matmul(a, b) if a.dtype.kind == "f" else np.matmul(a, b)
        return result if bias is None else result + bias

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, co | ci when the operands have rank 2 (rows n), else b0.., m, co | ci.

        A batch of single rows by one matrix are the rows m of one product.
        """
        shape = shape_of(self.result)
        a, b = shape_of(self.inputs[0]), shape_of(self.inputs[1])
        rows = "n" if max(len(a), len(b)) == 2 else "m"
        names = [f"b{axis}" for axis in range(len(shape) - 2)] + [rows, "co"]
        if self._is_batch_of_rows:
            names[-3:-1] = reversed(names[-3:-1])
            rows = names[-2]
        swap_a, swap_b = self.transposed
        ends = (
            ("ci", rows) if swap_a else (rows, "ci"),
            ("co", "ci") if swap_b else ("ci", "co"),
            (rows, "co"),
        )
        reads = [
            " ".join([*names[:-2], *last][len(shape) - len(shape_of(value)) :])
            for value, last in zip(self.inputs, ends, strict=False)
        ]
        return self.nest(operands, result, f"{', '.join(reads)} -> {' '.join(names)}")

    @property
    def _is_batch_of_rows(self) -> bool:
        """True if the innermost batch dim has several single rows, all by one matrix and bias."""
        shape = shape_of(self.result)
        others = [shape_of(value)[:-1] for value in self.inputs[2:]]
        others.append(shape_of(self.inputs[1])[:-2])
        single = len(shape) > 2 and shape[-2] == 1 and shape[-3] > 1
        return single and all(extent == 1 for extents in others for extent in extents)
