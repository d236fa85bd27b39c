"""Scaled dot-product attention of several heads, as one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import broadcast_shape, definition
from tilewright.ir.types import Array, dtype_of
from tilewright.planning.domain import Role, Stage


@definition
class AttentionOp(Operation):
    """softmax(q @ k^T * scale + mask) @ v, head by head: [b, m, h, e].

    Operands are q [b, m, h, d], k [b, t, h, d], v [b, t, h, e], and perhaps a mask that broadcasts
    to [b, h, m, t]. Heads lie after the rows, as the products before and after have them.
    Vaswani et al., "Attention is all you need", 2017, equation 1. Floats only: simplify makes it
    of two products and a softmax, for machines that compute it at once.
    """

    name = "graph.attention"
    DEFAULTS: ClassVar[Attributes] = {"scale": 1.0}
    ARITY: ClassVar[tuple[int, int]] = (3, 4)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "input", "input", "bias")

    def infer(self, types: Sequence[Type]) -> Type:
        """[b, m, h, e]."""
        self.need_float(types[0])
        _ = self.number("scale")
        q, k, v = (kind.get_shape() for kind in types[:3])
        self.need(
            len(q) == len(k) == len(v) == 4
            and (q[0], q[2]) == (k[0], k[2]) == (v[0], v[2])
            and (q[3], k[1]) == (k[3], v[1]),
            f"q {list(q)}, k {list(k)} and v {list(v)} do not fit",
        )
        self.need(q[3] >= 1 and k[1] >= 1, "there is nothing to attend to")
        if len(types) == 4:
            mask, scores = types[3].get_shape(), (q[0], q[2], q[1], k[1])
            self.need(
                len(mask) == 4 and broadcast_shape(self, [mask, scores]) == scores,
                f"mask {list(mask)} does not broadcast to {list(scores)}",
            )
        return self.result_of((*q[:3], v[3]), self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """In float64, rounded once."""
        q, k, v = (array.astype(np.float64).swapaxes(1, 2) for array in arrays[:3])
        mask = arrays[3:]
        scores = q @ k.swapaxes(2, 3) * self.number("scale")
        with np.errstate(invalid="ignore"):  # rows that are masked altogether
            scores = scores + mask[0] if mask else scores
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            attended = weights / weights.sum(-1, keepdims=True) @ v
        dtype = dtype_of(self.result)
        return np.ascontiguousarray(attended.swapaxes(1, 2)).astype(dtype)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims b0, b1 (heads), m, e | t, d."""
        notation = "b0 m b1 d, b0 t b1 d, b0 t b1 e, b0 b1 m t -> b0 m b1 e"
        return self.nest(operands, result, notation, order="b0 b1 m e t d")
