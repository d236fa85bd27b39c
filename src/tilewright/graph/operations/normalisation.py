"""Batch, layer and local response normalisation, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.ir.types import Array, FixedType, shape_of
from tilewright.numerics import fixed, lrn_gradient, reference
from tilewright.numerics.element_types import widened
from tilewright.planning.domain import Role, Stage


@definition
class BatchNormOp(Operation):
    """scale * (x - mean) / sqrt(variance + epsilon) + shift, per channel (axis 1).

    Operands x, scale, shift, mean, variance; float only (it is folded before numbers are fixed).
    """

    name = "graph.batch_norm"
    DEFAULTS: ClassVar[Attributes] = {"epsilon": 1e-5}
    ARITY: ClassVar[tuple[int, int]] = (5, 5)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "weight", "weight", "weight")
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x."""
        shape = types[0].get_shape()
        self.need(len(shape) >= 2, f"x needs rank 2 at least, has shape {list(shape)}")
        names = ("scale", "shift", "mean", "variance")
        self.need_shapes(dict.fromkeys(names, shape[1:2]), types[1:])
        self.need(self.number("epsilon") >= 0, "epsilon must not be negative")
        element = self.common_element(types)
        return self.result_of(shape, element)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result in float32 numbers."""
        x, scale, shift, mean, variance = arrays
        return reference.batch_norm(x, scale, shift, mean, variance, self.number("epsilon"))

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0..dk of the result."""
        image = " ".join(f"d{axis}" for axis in range(len(shape_of(self.result))))
        return self.nest(operands, result, f"{image}, d1, d1, d1, d1 -> {image}")


class LrnOperation(Operation):
    """The settings and shapes of local response normalisation and of its gradient."""

    DEFAULTS: ClassVar[Attributes] = {"size": STATED, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    RESULT_CHOSEN: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[int, float, float, float]:
        """Size, alpha, beta, bias, checked."""
        alpha, beta, bias = self.number("alpha"), self.number("beta"), self.number("bias")
        self.need(0 <= alpha <= 2**16, f"alpha must lie in [0, 65536], is {alpha}")
        self.need(0 < bias <= 2**16, f"bias must lie in (0, 65536], is {bias}")
        self.need(0 <= beta <= 16, f"beta must lie in [0, 16], is {beta}")
        return self.integer("size", 1, 2**16), alpha, beta, bias

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x."""
        shape = types[0].get_shape()
        self.need(len(shape) == 4, f"images must have rank 4, have shape {list(shape)}")
        alpha = self.parameters[1]
        element = types[0].element_type
        if isinstance(element, FixedType):
            element = self.fixed(types[0], (16,))
            point = element.fraction.data
            self.need(alpha < 4, f"alpha must be less than 4 in fixed point, is {alpha}")
            self.need(-5 <= point <= 26, f"binary point {point} must lie in [-5, 26]")
        for kind in types[1:]:
            self.need(kind.get_shape() == shape, f"shapes {shape} and {kind.get_shape()} differ")
            fixed_too = isinstance(kind.element_type, FixedType)
            self.need(fixed_too == isinstance(element, FixedType), "floats beside fixed point")
        return self.result_of(shape, element)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, c, h, w | j."""
        size = self.integer("size", 1, 2**16)
        notation = f"n c+j-{(size - 1) // 2} h w, n c h w -> n c h w"
        return self.nest(operands, result, notation, {"j": size})


@definition
class LrnOp(LrnOperation):
    """Local response normalisation across channels of [n, c, h, w].

    x / (bias + alpha/size * s)**beta with s the sum of squares over the ``size`` channels from
    c - (size-1)//2. In fixed point the result is 16-bit; its binary point is chosen.
    """

    name = "graph.lrn"

    def evaluate(self, *arrays: Array) -> Array:
        """Float32 sums in float32; fixed point as numerics.fixed.lrn states."""
        if self.is_fixed:
            return fixed.lrn(arrays[0], *self.parameters, self.fractions[0], self.result_fraction)
        (x,) = widened(arrays)
        return self.as_result(reference.lrn(x, *self.parameters))


@definition
class LrnGradientOp(LrnOperation):
    """The gradient of ``lrn`` at x, from that of its result: operands x and dy.

    In fixed point both have 16 bits, at binary points of their own, as the result; channels are
    kept whole.
    """

    name = "graph.lrn_gradient"
    ARITY: ClassVar[tuple[int, int]] = (2, 2)

    def evaluate(self, *arrays: Array) -> Array:
        """Fixed point as numerics.lrn_gradient states."""
        x, gradient = arrays
        if not self.is_fixed:
            return lrn_gradient.in_floats(x, gradient, *self.parameters)
        points = (self.fractions[0], self.fractions[1], self.result_fraction)
        return lrn_gradient.in_fixed_point(x, gradient, *self.parameters, points)


@definition
class SoftmaxOp(Operation):
    """exp(x) over its sum along ``axis``; in fixed point the result's binary point is chosen."""

    name = "graph.softmax"
    DEFAULTS: ClassVar[Attributes] = {"axis": -1}
    RESULT_CHOSEN: ClassVar[bool] = True

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x; fixed point gets 14 fraction bits unless chosen otherwise."""
        shape = types[0].get_shape()
        self.need(len(shape) >= 1, "takes rank 1 at least")
        axis = self.integer("axis", -len(shape), len(shape) - 1)
        self.need(shape[axis] >= 1, f"axis {axis} of {list(shape)} is empty")
        element = types[0].element_type
        if isinstance(element, FixedType):
            point = self.fixed(types[0], (16,)).fraction.data
            self.need(-29 <= point <= 46, f"binary point {point} must lie in [-29, 46]")
            element = FixedType.of(16, 14)
        else:
            self.need_float(types[0])
        return self.result_of(shape, element)

    def evaluate(self, *arrays: Array) -> Array:
        """Float32 sums in float32; fixed point as numerics.fixed.softmax states."""
        axis = self.counted_axis
        if self.is_fixed:
            return fixed.softmax(arrays[0], axis, self.fractions[0], self.result_fraction)
        (x,) = widened(arrays)
        return self.as_result(reference.softmax(x, axis))

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0.. of the other axes | axis, which a tile keeps whole."""
        return self.rows(operands, result, self.counted_axis)


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
        self.need_float(types[0])
        shape = types[0].get_shape()
        self.need(len(shape) >= 1 and shape[-1] >= 1, f"has nothing to normalise in {list(shape)}")
        self.need_shapes(dict.fromkeys(("scale", "shift"), shape[-1:]), types[1:])
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
