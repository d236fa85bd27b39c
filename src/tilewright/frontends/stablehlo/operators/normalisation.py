"""Batch normalisation as inference has it."""

from __future__ import annotations

from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.values import View


def batch_norm_inference(at: Lowering) -> View:
    """scale * (x - mean) / sqrt(variance + epsilon) + shift, per index of one axis."""
    x, axis = at.views[0], at.integer("feature_index")
    epsilon = at.op.attributes.get("epsilon")
    if not isinstance(epsilon, float) or x.rank < 2:
        raise at.refuse("epsilon is not a number, or there is no batch")
    order = [*(i for i in x.axes if i != axis)]
    order.insert(1, axis)
    core = at.emit(
        "batch_norm",
        at.full(x, order),
        *(at.full(view) for view in at.views[1:]),
        epsilon=epsilon,
    )
    return View.of(core, order)
