"""Channel shuffle: the channels of groups, interleaved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operations.base import Attributes, Operation, Type, definition
from tilewright.ir import prop_def
from tilewright.ir.types import Array, shape_of
from tilewright.planning.domain import Stage


@definition
class ChannelShuffleOp(Operation):
    """Channel ``a * groups + b`` of the result is channel ``b * (c / groups) + a`` of x [n,c,h,w].

    Zhang et al., "ShuffleNet", 2018, section 3.1. Simplify makes it of a reshape, a transpose and
    a reshape, for machines that compute it at once.
    """

    name = "graph.channel_shuffle"
    groups = prop_def()
    DEFAULTS: ClassVar[Attributes] = {"groups": None}

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x."""
        self.check_operands(types)
        shape = types[0].get_shape()
        self.need(len(shape) == 4, f"images must have rank 4, have shape {list(shape)}")
        groups = self.integer("groups", 1, 2**24)
        self.need(shape[1] % groups == 0, f"{shape[1]} channels do not divide into {groups} groups")
        return self.result_of(shape, types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        n, c, h, w = arrays[0].shape
        groups = self.integer("groups", 1, 2**24)
        grouped = arrays[0].reshape(n, groups, c // groups, h, w)
        return np.ascontiguousarray(grouped.swapaxes(1, 2)).reshape(n, c, h, w)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, a, b, h, w."""
        groups = self.integer("groups", 1, 2**24)
        each = shape_of(self.result)[1] // groups
        notation = f"n b*{each}+a h w -> n a*{groups}+b h w"
        return self.nest(operands, result, notation, {"a": each, "b": groups})
