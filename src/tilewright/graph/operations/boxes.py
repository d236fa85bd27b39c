"""Boxes of detectors: of those that overlap, the ones of the highest scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.ir import f32, i64
from tilewright.ir.types import Array
from tilewright.planning.domain import Stage


@definition
class NonMaxSuppressionOp(Operation):
    """The places of boxes that are chosen for each class, [n, c, most] of int64, -1 after the last.

    Operands are boxes [n, m, 4], scores [n, c, m] and a number. By their scores, of equal ones the
    first, boxes are chosen that share no larger part than this number with one chosen before:
    their intersection by their union. A score of minus infinity chooses none. A box is two corners,
    in any order, or with ``center`` its middle, width and height.
    """

    name = "graph.non_max_suppression"
    DEFAULTS: ClassVar[Attributes] = {"most": STATED, "center": False}
    ARITY: ClassVar[tuple[int, int]] = (3, 3)
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """Places for each class; operands are float32."""
        boxes, scores = (kind.get_shape() for kind in types[:2])
        fits = len(boxes) == 3 == len(scores) and boxes[2] == 4
        fits = fits and (boxes[0], boxes[1]) == (scores[0], scores[2])
        self.need(fits, f"boxes {list(boxes)} do not fit scores {list(scores)}")
        self.need_shapes({"boxes": boxes, "scores": scores, "the threshold": ()}, types)
        self.need(all(kind.element_type == f32 for kind in types), "takes float32")
        most = self.integer("most", 1, 2**24)
        return self.result_of((*scores[:2], most), i64)

    def evaluate(self, *arrays: Array) -> Array:
        """In float32, as in C."""
        boxes, scores, threshold = arrays
        corners = _corners(boxes, center=bool(self.get("center", False)))
        most = int(self.get("most"))
        chosen = np.full((*scores.shape[:2], most), -1, np.int64)
        for n, c in np.ndindex(*scores.shape[:2]):
            found = _chosen(corners[n], scores[n, c], float(threshold), most)
            chosen[n, c, : len(found)] = found
        return chosen

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0, d1 of the classes, r of what is chosen | m boxes and s sides, kept whole."""
        return self.nest(operands, result, "d0 m s, d0 d1 m, -> d0 d1 r")


def _corners(boxes: Array, *, center: bool) -> Array:
    """The lower corner of each box, then the higher one, [n, m, 4]."""
    one, other = boxes[..., :2], boxes[..., 2:]
    if center:
        half = other * np.float32(0.5)
        one, other = one - half, one + half
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=-1)


def _chosen(corners: Array, scores: Array, threshold: float, most: int) -> list[int]:
    """The boxes of one class that are chosen."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > -np.inf]
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    found: list[int] = []
    for place in order.tolist():
        if len(found) == most:
            break
        low = np.maximum(corners[found, :2], corners[place, :2])
        high = np.minimum(corners[found, 2:], corners[place, 2:])
        sides = np.maximum(high - low, np.float32(0))
        shared = sides[:, 0] * sides[:, 1]
        with np.errstate(all="ignore"):  # Boxes without an area share nothing: 0 by 0.
            parts = shared / (areas[found] + areas[place] - shared)
        if not (parts > threshold).any():
            found.append(place)
    return found
