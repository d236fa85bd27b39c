"""equalise: channels of activations made alike, by factors that products' weights take back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import (
    add_weight,
    compiler,
    constant,
    finite,
    make,
    merge_weights,
    sweep,
)
from tilewright.graph.passes.equalise_sites import Site, equalising_sites, rows_of
from tilewright.graph.values import value_names
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of
from tilewright.numerics.formats import numbers_of


@dataclass(frozen=True)
class Equalise(ModulePass):
    """Divide the channels of what integer products will read by the context's factors.

    Before::

        %1 = graph.layer_norm %x, %scale, %shift
        %2 = graph.matmul %1, %w
        %3 = graph.gelu %2
        %4 = graph.matmul %3, %v

    After::

        %1 = graph.layer_norm %x, %scale_over_s, %shift_over_s
        %2 = graph.matmul %1, %s_times_w
        %3 = graph.gelu %2
        %5 = graph.mul %3, %one_over_t
        %4 = graph.matmul %5, %t_times_v

    In real numbers nothing changes. Xiao et al., "SmoothQuant" (ICML 2023); between two products
    with what is linear in every channel between them it is the cross-layer equalisation of Nagel
    et al., "Data-free quantization through weight equalization and bias correction" (ICCV 2019,
    section 4.1), with activations' ranges in place of the first weights'. Where other operations
    read the value too (the residual sums of Transformers), or the operation before takes no factors
    (GELU), the value is multiplied before it is quantised. equalise_sites.py chooses places and
    factors; it leaves values between two integer products alone, where small networks lost by it.
    """

    name = "equalise"
    numbers: str = "int8"
    keep_float: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context, network = compiler(ctx), network_of(op)
        names = value_names(op)
        per_channel = numbers_of(self.numbers).format.per_channel
        for site in equalising_sites(network, context, self.keep_float, per_channel):
            factors = context.factors.get(names[site.value])
            if factors is not None and len(factors) == shape_of(site.value)[site.axis]:
                _equalise(site, factors.astype(np.float64), context)
        sweep(network)
        merge_weights(network)


def _equalise(site: Site, factors: NDArray[np.float64], ctx: CompilerContext) -> None:
    """Divide at one place; not if a weight left the range of float32."""
    inward = [(op, 1, _multiplied(op, factors, ctx)) for op in site.products]
    outward: list[tuple[Operation, int, Array]] = []
    if site.producer is not None:
        outward = [
            (site.producer, index, _divided(site, index, factors, ctx))
            for index in range(1, len(site.producer.inputs))
        ]
    if not finite(*(array for _, _, array in (*inward, *outward))):
        return
    for op, index, array in (*outward, *inward):
        op.operands[index] = add_weight(ctx, array, op, f"{op.node_name or op.operation}.equal")
    if site.way == "multiply":
        value = _multiply(site, factors, ctx)
        for op in site.products:
            op.operands[0] = value


def _multiplied(op: Operation, factors: NDArray[np.float64], ctx: CompilerContext) -> Array:
    """The weights of a product whose input's channels were divided."""
    weight = constant(op.inputs[1], ctx)
    assert weight is not None
    rows, channel = rows_of(op, weight)
    with np.errstate(over="ignore"):
        scaled = (rows * factors[channel][:, :, None]).astype(np.float32)
    if op.operation == "matmul" and not op.get("transpose_b", False):
        return np.ascontiguousarray(scaled[:, :, 0].T)
    return scaled.reshape(weight.shape)


def _divided(site: Site, index: int, factors: NDArray[np.float64], ctx: CompilerContext) -> Array:
    """A constant operand of the producer whose result's channels are divided."""
    op = site.producer
    assert op is not None
    array = constant(op.inputs[index], ctx)
    assert array is not None
    axis = 0
    if op.operation == "matmul" and index == 1 and not op.get("transpose_b", False):
        axis = 1
    shape = [1] * array.ndim
    shape[axis] = -1
    with np.errstate(over="ignore"):
        return (array.astype(np.float64) / factors.reshape(shape)).astype(np.float32)


def _multiply(site: Site, factors: NDArray[np.float64], ctx: CompilerContext) -> SSAValue:
    """The value times one over the factors, before the first product that reads it."""
    first = site.products[0]
    for op in site.products[1:]:
        if op.is_before_in_block(first):
            first = op
    shape = [1] * len(shape_of(site.value))
    shape[site.axis] = -1
    inverse = (1.0 / factors).astype(np.float32).reshape(shape)
    weight = add_weight(ctx, inverse, first, f"{first.node_name or 'product'}.inverse")
    return make("mul", [site.value, weight], before=first).result
