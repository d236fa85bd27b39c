"""NonMaxSuppression: of boxes that overlap, those of the highest scores.

A loop of the network takes the best box of every class in each round, and takes out those that
overlap it: as many rounds as boxes may be chosen. What was chosen is then brought together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.frontends.loops import BodyBuilder
from tilewright.frontends.moves import element_at
from tilewright.frontends.onnx.decided import ended, first, room
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators.run_sizes import kept_first
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


@dataclass(frozen=True)
class Boxes:
    """Edges and areas of boxes, each of one shape."""

    low: tuple[SSAValue, SSAValue]
    high: tuple[SSAValue, SSAValue]
    area: SSAValue

    @property
    def parts(self) -> tuple[SSAValue, ...]:
        """All of them."""
        return (*self.low, *self.high, self.area)

    @classmethod
    def of(cls, parts: list[SSAValue]) -> Boxes:
        """The boxes of what ``parts`` listed."""
        return cls((parts[0], parts[1]), (parts[2], parts[3]), parts[4])


def non_max_suppression(at: Lowering) -> Value:
    """Batch, class and place of each box that is chosen, [number, 3]: by batch, class and score."""
    batch, count, _ = at.shape(0)
    classes = at.shape(1)[1]
    if at.shape(0) != (batch, count, 4) or at.shape(1) != (batch, classes, count):
        raise at.misfit(f"boxes {list(at.shape(0))} and scores {list(at.shape(1))} do not fit")
    rounds = min(int(at.scalar_at(2, "largest number of boxes") or 0), count)
    if rounds < 1:
        return Constant(np.zeros((0, 3), np.int64), at.node.outputs[0])
    name, most = room(at, most=batch * classes * rounds)
    boxes = _boxes(at)
    scores = at.tensor(1)
    if at.has(4):
        above = at.emit("less", at.reshape(at.tensor(4), ()), scores)
        scores = at.emit("select", above, scores, at.made(-np.inf, scores, "none"))
    threshold = at.reshape(at.tensor(3), ()) if at.has(3) else at.made(0, scores, "threshold")
    body = BodyBuilder(at.network, [scores], [])
    left, row = _round(at.within(body), body.states[0], boxes, threshold)
    _, (rows,) = body.loop(at, rounds, [left], [row], [False])
    # In the order of batches, classes and rounds.
    chosen = at.reshape(at.transpose(rows, (1, 2, 0)), (batch * classes * rounds,))
    kept = at.emit("bit_not", at.apply("less", chosen, 0))
    order, found = kept_first(at, kept)
    places = ended(at, first(at, order, 0, most), 0, name, found)
    columns = [
        at.apply("div", places, classes * rounds),
        at.apply("mod", at.apply("div", places, rounds), classes),
        at.cast(at.emit("gather", chosen, places, axis=0), np.int64),
    ]
    return at.emit("concat", *(at.reshape(column, (most, 1)) for column in columns), axis=1)


def _boxes(at: Lowering) -> Boxes:
    """The boxes, [batch, 1, count]: corners in any order, or middles with widths and heights."""
    batch, count, _ = at.shape(0)
    sides = [
        at.reshape(element_at(at, at.tensor(0), 2, side), (batch, 1, count)) for side in range(4)
    ]
    pairs: list[tuple[SSAValue, SSAValue]] = []
    for number in range(2):
        one, other = sides[number], sides[number + 2]
        if at.integer("center_point_box"):
            half = at.apply("mul", other, 0.5)
            one, other = at.emit("sub", one, half), at.emit("add", one, half)
        pairs.append((at.emit("min", one, other), at.emit("max", one, other)))
    (y0, y1), (x0, x1) = pairs
    area = at.emit("mul", at.emit("sub", y1, y0), at.emit("sub", x1, x0))
    return Boxes((y0, x0), (y1, x1), area)


def _round(
    at: Lowering, scores: SSAValue, boxes: Boxes, threshold: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """The scores that are left, minus infinity for boxes that are out, and the best boxes'
    places, -1 where none is left, [batch, classes]."""
    batch, classes, count = shape_of(scores)
    best = at.emit("arg_max", scores, axes=(2,), keep_dims=True)
    none = at.made(-np.inf, scores, "none")
    top = at.emit("reduce_max", scores, axes=(2,), keep_dims=True)
    starts = (np.arange(batch) * count).reshape(batch, 1, 1)
    places = at.emit("add", best, at.weight(starts, f"{at.node.name}.starts"))
    lists = [at.reshape(part, (batch * count,)) for part in boxes.parts]
    one = Boxes.of([at.emit("gather", part, places, axis=0) for part in lists])
    sides: list[SSAValue] = []
    for axis in range(2):
        begin = at.emit("max", one.low[axis], boxes.low[axis])
        end = at.emit("min", one.high[axis], boxes.high[axis])
        sides.append(at.apply("max", at.emit("sub", end, begin), 0))
    shared = at.emit("mul", *sides)
    together = at.emit("sub", at.emit("add", one.area, boxes.area), shared)
    # Boxes without an area share nothing: 0 by 0 is no number, and none is above the threshold.
    overlaps = at.emit("less", threshold, at.emit("div", shared, together))
    same = at.emit("equal", best, at.weight(np.arange(count).reshape(1, 1, count), "places"))
    out = at.emit("bit_or", overlaps, same)
    left = at.emit("select", out, none, scores)
    found = at.emit("less", none, top)
    row = at.emit("select", found, at.cast(best, np.float32), at.made(-1, scores, "nothing"))
    return left, at.reshape(row, (batch, classes))
