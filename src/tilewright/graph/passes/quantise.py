"""quantise: from float32 to another number format, by calibrated ranges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.errors import Problem, TilewrightError, nearest
from tilewright.graph.dialect import NetworkOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.compute_in_integers import ComputeInIntegers
from tilewright.graph.passes.editing import (
    add_weight,
    compiler,
    constant,
    finite,
    make,
    merge_weights,
    operations_of,
    sweep,
    use_instead,
)
from tilewright.graph.passes.equalise import Equalise
from tilewright.graph.passes.fold_constants import FoldConstants
from tilewright.graph.passes.integer_sites import PRODUCTS, Sites, sites_of
from tilewright.graph.passes.points import refuse_missing
from tilewright.graph.passes.shorten_floats import ShortFloats
from tilewright.graph.values import value_names
from tilewright.ir import Block, Context, ModuleOp, ModulePass, SSAValue, f32
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.passes import CompilerContext, PassEntry
from tilewright.ir.types import Array, shape_of, tensor_type
from tilewright.numerics import linear
from tilewright.numerics.formats import Format, Numbers, numbers_of

LARGEST_BIAS = 2.0**30
"""Largest magnitude of a bias in units of its scale, so that sums have room."""

BIAS_BITS = 24
"""Bits that the bias of a channel whose weights are all zero is kept with."""


@dataclass(frozen=True)
class Quantise(ModulePass):
    """Give weights and activations another number format (numerics/formats.py).

    Before::

        %1 = graph.conv %x, %w, %b {node = "conv1"}
        %2 = graph.relu %1

    After, for ``int8``::

        %qx = quantised %x, scale of x ;  %dx = dequantised %qx
        %dw = dequantised (int8 weights), a scale for each channel
        %db = dequantised (int32 bias), scale of x times scale of w
        %1 = graph.conv %dx, %dw, %db
        %2 = graph.relu %1
        %q2 = quantised %2, scale of its own ;  ...

    Integers thus appear between ``quantise`` and ``dequantise`` operations, the very ones that a
    quantised ONNX model is imported as; what computes them in integers is another pass's work.
    Scales come from the context's ranges; integer_sites.py says which values are quantised.
    For ``float16`` and ``bfloat16`` see shorten_floats.py. ``keep_float`` names nodes that stay
    float32; with ``only``, all nodes but those do. ``least_error`` searches the weights' scales.
    """

    name = "quantise"
    numbers: str = "int8"
    keep_float: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    least_error: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        _ = self.rewrite(op, compiler(ctx))

    def rewrite(self, module: ModuleOp, ctx: CompilerContext) -> dict[SSAValue, SSAValue]:
        """Rewrite the module in place. Returns for each quantised value the value that its readers
        read instead."""
        network, chosen = network_of(module), numbers_of(self.numbers).format
        rounded: dict[SSAValue, SSAValue] = {}
        if chosen.kind == "float":
            rounded = ShortFloats(ctx, chosen, set(self.keep_float), self.only).run(network)
        elif chosen.kind == "linear":
            sites = sites_of(network, self.keep_float, self.only, _endless(module, ctx))
            names = value_names(module)
            rounded = _Quantiser(ctx, chosen, self.least_error, names).run(network, sites)
        sweep(network)
        merge_weights(network)
        module.verify()
        return rounded


def quantise_pipeline(numbers: Numbers) -> tuple[list[PassEntry], list[PassEntry]]:
    """The passes before ranges are observed, and the others."""
    equalise = [
        PassEntry(
            Equalise(numbers.format.name, numbers.keep_float),
            "before ranges are observed: one scale serves channels that are alike",
        )
    ]
    step = Quantise(
        numbers.format.name,
        numbers.keep_float,
        least_error=numbers.observer == "mean-squared-error",
    )
    after = [PassEntry(step, f"{numbers.format.name} was asked for")]
    if numbers.format.has_bytes:
        after += [
            PassEntry(ComputeInIntegers(), "what lies between quantised values needs no floats"),
            PassEntry(FoldConstants(), "weights that floats read after all are dequantised once"),
        ]
    return equalise if numbers.equalise else [], after


def check_nodes(nodes: tuple[str, ...], known: list[str]) -> None:
    """Refuse names that no node of the model has, with those nearest to them."""
    problems = [
        Problem("numbers-keep", "the model has no such node", repr(name), nearest(name, known))
        for name in nodes
        if name not in known
    ]
    if problems:
        raise TilewrightError(problems)


@dataclass
class _Quantiser:
    """Builds integers into a network at the sites that were chosen."""

    ctx: CompilerContext
    format: Format
    least_error: bool
    names: dict[SSAValue, str]
    scales: dict[SSAValue, Array] = field(default_factory=dict[SSAValue, Array])
    """Scale of every quantised value, an array of shape []."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the integers."""
        return np.dtype(np.int8 if self.format.bits == 8 else np.int16)

    def run(self, network: NetworkOp, sites: Sites) -> dict[SSAValue, SSAValue]:
        """Rewrite the network in place; what is read instead of each quantised value."""
        self._choose(sites)
        activations = {
            value: self._activation(network, value, sites) for value in list(sites.roots)
        }
        for op in network.operations:
            if op in sites.integer and op.operation in PRODUCTS:
                self._constants(op)
        return activations

    def _choose(self, sites: Sites) -> None:
        """Scales of all quantised values; refuses values whose range is not known."""
        missing: list[str] = []
        for value, root in sites.roots.items():
            if root is not value:
                self.scales[value] = self.scales[root]
                continue
            bounds = self.ctx.ranges.get(self.names[value])
            if bounds is None or not np.isfinite(bounds).all():
                missing.append(self.names[value])
                bounds = (0.0, 0.0)
            limit = max(-bounds[0], bounds[1], 0.0)
            self.scales[value] = linear.scales_of(limit, self.format.bits, self.format.power_of_two)
        refuse_missing(missing)

    def _activation(self, network: NetworkOp, value: SSAValue, sites: Sites) -> SSAValue:
        """Quantise a value where it is made, and let those who compute on integers read that.

        If a float operation made it, other float operations go on reading it as it is.
        """
        owner, scale = value.owner, self.scales[value]
        producer = owner if isinstance(owner, Operation) else None
        before = network.block.first_op if isinstance(owner, Block) else owner.next_op
        assert before is not None
        uses = list(value.uses)
        integers = self._scaled("quantise", value, scale, self.dtype, before, producer)
        back = self._scaled("dequantise", integers, scale, self.dtype, before, producer)
        if producer is None:
            integers.name_hint = back.name_hint = value.name_hint
        every = producer in sites.integer
        use_instead([use for use in uses if every or use.operation in sites.integer], back)
        return back

    def _constants(self, op: Operation) -> None:
        """Quantise the constant operands of a product."""
        scales: list[Array] = []
        for index in (0, 1):
            array = constant(op.inputs[index], self.ctx)
            if array is None:
                scales.append(self.scales_after(op.inputs[index]))
                continue
            axis = _channel_axis(op, index) if self.format.per_channel else None
            scale = linear.weight_scales(
                array, axis, self.format.bits, self.format.power_of_two, self.least_error
            )
            if index == 1 and len(op.inputs) == 3:
                scale = self._with_room(scale, scales[0], constant(op.inputs[2], self.ctx))
            scales.append(scale)
            shape = [1] * array.ndim
            if scale.ndim and axis is not None:
                shape[axis] = scale.size
            spread = scale.reshape(shape) if scale.ndim else scale
            quantised = linear.quantise(array, spread, self.format.bits)
            op.operands[index] = self._constant(quantised, spread, op, op.inputs[index])
        if len(op.inputs) == 3:
            self._bias(op, scales)

    def scales_after(self, value: SSAValue) -> Array:
        """The scale of a dequantised activation."""
        owner = value.owner
        assert isinstance(owner, Operation)
        scales = constant(owner.inputs[1], self.ctx)
        assert scales is not None, "an integer product reads dequantised operands"
        return scales

    def _with_room(self, scale: Array, of_input: Array, bias: Array | None) -> Array:
        """The weights' scales, widened where the bias would not fit 31 bits or would get lost."""
        if bias is None or (scale.ndim and bias.size != scale.size):
            return scale
        size = np.abs(bias.astype(np.float64)).reshape(-1)
        size = size if scale.ndim else np.asarray(size.max(initial=0.0))
        least = size / (float(of_input) * LARGEST_BIAS)
        # All weights are zero: their scale is free to be the bias's.
        free = (scale == 1.0) & (size > 0)
        least = np.where(free, size / (float(of_input) * 2.0**BIAS_BITS), least)
        if self.format.power_of_two:
            least = 2.0 ** np.ceil(np.log2(np.maximum(least, linear.LEAST_SCALE)))
        wider = np.where(free, least, np.maximum(scale, least))
        return wider.astype(np.float32)

    def _bias(self, op: Operation, scales: list[Array]) -> None:
        """A constant bias as 32-bit integers in units of the product of the scales."""
        array = constant(op.inputs[2], self.ctx)
        unit = (scales[0] * scales[1]).astype(np.float32)
        if array is None or (unit.ndim and array.shape != unit.shape):
            return
        integers = np.clip(np.rint(array.astype(np.float64) / unit), -(2.0**31), 2.0**31 - 1)
        op.operands[2] = self._constant(integers.astype(np.int32), unit, op, op.inputs[2])

    def _constant(self, array: Array, scale: Array, op: Operation, old: SSAValue) -> SSAValue:
        """Integers as a weight, dequantised."""
        assert isinstance(old.owner, WeightOp)
        symbol = add_weight(self.ctx, array, op, old.owner.symbol.data.rsplit("_", 1)[0])
        return self._scaled("dequantise", symbol, scale, array.dtype, op, None)

    def _scaled(
        self,
        name: str,
        value: SSAValue,
        scale: Array,
        dtype: np.dtype[Any],
        before: AnyOperation,
        like: Operation | None,
    ) -> SSAValue:
        """Floats as integers of a type, or integers as floats, with a zero point of 0."""
        operands = [value, add_weight(self.ctx, scale, before, "scale")]
        operands.append(add_weight(self.ctx, np.zeros((), dtype), before, "zero"))
        return make(f"{name}_linear", operands, before=before, like=like).result


def _endless(module: ModuleOp, ctx: CompilerContext) -> set[Operation]:
    """Products with infinities or NaN among their constants, which no scale reaches."""
    products = [op for op in operations_of(module) if op.operation in PRODUCTS]
    arrays = {op: [constant(value, ctx) for value in op.inputs] for op in products}
    return {
        op for op, values in arrays.items() if not finite(*(a for a in values if a is not None))
    }


def _channel_axis(op: Operation, index: int) -> int | None:
    """The axis of a constant operand along which output channels lie; None if it is the first."""
    if op.operation == "conv":
        return 0 if index == 1 else None
    if index == 0:
        return None
    rank = len(shape_of(op.inputs[1]))
    return rank - 2 if op.get("transpose_b", False) else rank - 1


def layers_of(module: ModuleOp, numbers: str) -> dict[str, SSAValue]:
    """The nodes whose operations a format changes, and their results, in program order.

    An activation function that belongs to a product gives the product's result.
    """
    chosen, network = numbers_of(numbers).format, network_of(module)
    by_name: dict[str, SSAValue] = {}
    if chosen.kind == "linear":
        sites = sites_of(network)
        layers = {op for op in sites.layers if op.node_name}
        for op in operations_of(module):
            if op in layers:
                by_name[op.node_name] = sites.result_of(op)
    elif chosen.kind == "float":
        for op in operations_of(module):
            if op.node_name and tensor_type(op.result).element_type == f32:
                by_name[op.node_name] = op.result
    return by_name
