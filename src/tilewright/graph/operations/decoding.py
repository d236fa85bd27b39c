"""Operations of models that make one token after another: rotations, and attention over a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.ir import f32
from tilewright.ir.types import Array, shape_of
from tilewright.planning.domain import Role, Stage

KEYS = 16
"""Tokens whose keys lie side by side in a cache."""


@definition
class RotateOp(Operation):
    """x [m, heads, d] with the pairs (i, i + d/2) of row r turned by row position + r of a table.

    The table [positions, d] has cosines, then sines. Operands x, table, position [1]. Su et al.,
    "RoFormer: enhanced transformer with rotary position embedding", 2021.
    """

    name = "graph.rotate"
    ARITY: ClassVar[tuple[int, int]] = (3, 3)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "bias")
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """The type of x."""
        x, table = (kind.get_shape() for kind in types[:2])
        self.need(types[0].element_type == types[1].element_type == f32, "takes float32")
        self.need(
            len(x) == 3 and len(table) == 2 and x[2] % 2 == 0 and table[1] == x[2],
            f"{list(x)} is not turned by a table {list(table)}",
        )
        self.need(table[0] >= x[0], f"a table of {table[0]} positions for {x[0]} rows")
        self.need_integer(types[2])
        self.need_shapes({"position": (1,)}, types[2:])
        return self.result_of(x, f32)

    def evaluate(self, *arrays: Array) -> Array:
        """In float32."""
        x, table, position = arrays
        rows = first_row(position, len(table) - len(x)) + np.arange(len(x))
        cosine, sine = np.split(table[rows][:, None], 2, axis=2)
        a, b = np.split(x, 2, axis=2)
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=2)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims m, h, d | u, the positions that there are."""
        return self.nest(operands, result, "m h d, u d, 0 -> m h d")


def first_row(position: Array, most: int) -> int:
    """A position as kernels take it: cut to [0, most]."""
    return int(np.clip(int(position[0]), 0, most))


@definition
class CachedAttentionOp(Operation):
    """Attention of tokens position.. to themselves and all before, whose keys and values are kept.

    Operands are q [m, heads, d], k and v [m, groups, d] of the new tokens, position [1], and a
    cache of keys [groups, t/16, d, 16] and of values [groups, t, d], which lie in lasting memory:
    new keys and values take their places in it, and it is read up to them. Heads share the keys of
    their group. Ainslie et al., "GQA: training generalized multi-query transformer models from
    multi-head checkpoints", 2023. Tokens take t - m as position at most.
    """

    name = "graph.cached_attention"
    DEFAULTS: ClassVar[Attributes] = {"scale": STATED}
    ARITY: ClassVar[tuple[int, int]] = (6, 6)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "input", "input", "bias", "input", "input")
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """The type of q."""
        q, k = (kind.get_shape() for kind in types[:2])
        _ = self.number("scale")
        self.need(len(q) == len(k) == 3 and q[1] % k[1] == 0, f"q {list(q)} and k {list(k)}")
        self.need_integer(types[3])
        m, groups, d = q[0], k[1], q[2]
        blocks = types[4].get_shape()[1]
        shapes = {"k": (m, groups, d), "v": (m, groups, d), "position": (1,)}
        shapes |= {"keys": (groups, blocks, d, KEYS), "values": (groups, blocks * KEYS, d)}
        self.need_shapes(shapes, types[1:])
        self.need(m <= blocks * KEYS, f"a cache of {blocks * KEYS} tokens for {m}")
        self.need(all(kind.element_type == f32 for kind in (*types[:3], *types[4:])), "float32")
        return self.result_of(q, f32)

    def evaluate(self, *arrays: Array) -> Array:
        """In float64, rounded once; writes the cache."""
        q, k, v, position, keys, values = arrays
        m, heads = q.shape[:2]
        first = first_row(position, values.shape[1] - m)
        for row, place in enumerate(range(first, first + m)):
            keys[:, place // KEYS, :, place % KEYS] = k[row]
            values[:, place] = v[row]
        result = np.empty(q.shape, np.float32)
        for row in range(m):
            end = first + row + 1
            past = keys.transpose(0, 1, 3, 2).reshape(values.shape)[:, :end].astype(np.float64)
            past = np.repeat(past, heads // k.shape[1], axis=0)
            scores = np.einsum("htd,hd->ht", past, q[row].astype(np.float64))
            scores *= self.number("scale")
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            seen = np.repeat(values[:, :end].astype(np.float64), heads // k.shape[1], axis=0)
            result[row] = np.einsum("ht,htd->hd", weights, seen)
        return result

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims g (groups), m, r (heads of a group), e | d, u, l (tokens, in blocks), p."""
        groups = shape_of(self.inputs[1])[1]
        heads = shape_of(self.inputs[0])[1] // groups
        head = f"g*{heads}+r"
        notation = f"m {head} d, m g d, m g e, 0, g u d l, g p e -> m {head} e"
        extents = {"g": groups, "r": heads}
        return self.nest(operands, result, notation, extents, order="g m r e d u l p")
