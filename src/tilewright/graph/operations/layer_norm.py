"""Layer normalisation, and normalisation by the root of the mean square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Attributes, Operation, Type, definition
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import reference
from tilewright.numerics.element_types import widened
from tilewright.planning.domain import Role, Stage


@definition
class LayerNormOp(Operation):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last axis.

    Operands x, and perhaps scale and shift, one number for each place of the axis. Without
    ``centred`` nothing is subtracted, and the mean of the squares takes the variance's place.
    Ba et al., "Layer normalization", 2016; Zhang and Sennrich, "Root mean square layer
    normalization", 2019. Floats only: simplify makes it, for machines that compute it at once.
    """

    name = "graph.layer_norm"
    DEFAULTS: ClassVar[Attributes] = {"epsilon": 1e-5, "centred": True}
    ARITY: ClassVar[tuple[int, int]] = (1, 3)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "bias")

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x."""
        self.check_operands(types)
        self.need_float(types[0])
        shape = types[0].get_shape()
        self.need(len(shape) >= 1 and shape[-1] >= 1, f"has nothing to normalise in {list(shape)}")
        for name, kind in zip(("scale", "shift"), types[1:], strict=False):
            self.need(
                kind.get_shape() == shape[-1:],
                f"{name} must have shape {list(shape[-1:])}, has {list(kind.get_shape())}",
            )
        self.need(self.number("epsilon") >= 0, "epsilon must not be negative")
        self.need(self.get("centred", True) in (0, 1), "centred must be true or false")
        return self.result_of(shape, self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """In float64, rounded to float32, and from there to results of 16 bits."""
        x, *others = widened(arrays)
        centred = bool(self.get("centred", True))
        rows = reference.layer_norm(x, others, self.number("epsilon"), centred=centred)
        return self.as_result(rows)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0.. of the other axes | axis, which a tile keeps whole."""
        return self.rows(operands, result, len(shape_of(self.result)) - 1)
