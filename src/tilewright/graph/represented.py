"""The numbers that an output can take: their range, and the grid on which a model states them."""

from __future__ import annotations

import numpy as np

from tilewright.graph.dialect import KernelOp, WeightOp
from tilewright.graph.interpreter import WeightSource
from tilewright.graph.operation import Operation
from tilewright.graph.values import value_names
from tilewright.ir import Block, SSAValue
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import Array, FixedType, element_dtype, element_name, tensor_type
from tilewright.numerics.element_types import ELEMENTS, largest

MOVES = ("reshape", "transpose", "slice", "convert_layout")
"""Operations with one operand whose elements are that operand's."""

WIDENINGS = ("dequantise", "dequantise_linear", "cast")
"""Operations that write their operand's numbers in another type."""


def ends_of(value: SSAValue, weights: WeightSource) -> tuple[float, float] | None:
    """The least and the largest number that a value can be, of what its format holds.

    That is the narrow format in which it was computed, where it was only widened since. None where
    it is a float of 32 bits or more, or has several scales.
    """
    op = _origin(value)
    if op is not None and op.operation == "dequantise_linear":
        return _ends_of_integers(op, op.inputs[0], weights)
    operand = value if op is None or op.operation not in WIDENINGS else op.inputs[0]
    element = tensor_type(operand).element_type
    kind = ELEMENTS[element_name(element)]
    if kind.is_short_float:
        return -largest(kind), largest(kind)
    if kind.bits > 16 or not kind.is_integer or kind.name == "bool":
        return None
    limits = np.iinfo(element_dtype(element))
    scale = 2.0**-element.fraction.data if isinstance(element, FixedType) else 1.0
    return limits.min * scale, limits.max * scale


def _ends_of_integers(
    op: Operation, integers: SSAValue, weights: WeightSource
) -> tuple[float, float] | None:
    """The least and the largest number that integers of at most 16 bits stand for, by the scale
    and the zero point of the operation that makes or reads them; None where these are several."""
    terms = _terms(op, weights)
    element = tensor_type(integers).element_type
    kind = ELEMENTS[element_name(element)]
    if terms is None or terms[0].size != 1 or kind.bits > 16 or not kind.is_integer:
        return None
    limits, scale = np.iinfo(element_dtype(element)), terms[0].reshape(())
    zero = int(terms[1].reshape(-1)[0])
    return float((limits.min - zero) * scale), float((limits.max - zero) * scale)


def stated_ranges(module: AnyOperation, weights: WeightSource) -> dict[str, tuple[float, float]]:
    """The ranges that a model itself states of floats, by name: of those that it dequantises, and
    of those that it only quantises, which saturate at these ends."""
    ranges: dict[str, tuple[float, float]] = {}
    for value, name in value_names(module).items():
        owner = value.owner
        if isinstance(owner, Operation) and owner.operation == "dequantise_linear":
            ends = ends_of(value, weights)
        else:
            ends = _quantised_ends(value, weights)
        if ends is not None:
            ranges[name] = ends
    return ranges


def _quantised_ends(value: SSAValue, weights: WeightSource) -> tuple[float, float] | None:
    """The widest range of the integers to which all readers of a value round it; None where one
    reads it otherwise."""
    every: list[tuple[float, float]] = []
    for use in value.uses:
        op = use.operation
        if not isinstance(op, Operation) or op.operation != "quantise_linear" or use.index:
            return None
        ends = _ends_of_integers(op, op.result, weights)
        if ends is None:
            return None
        every.append(ends)
    lows, highs = [low for low, _ in every], [high for _, high in every]
    return (min(lows), max(highs)) if every else None


def grid_of(value: SSAValue, weights: WeightSource) -> Array | None:
    """The distance of the numbers to which a network rounds a value, which broadcasts to it.

    None where a value is not the result of integers of 8 or 16 bits.
    """
    op = _origin(value)
    if op is None or op.operation != "dequantise_linear":
        return None
    bits = ELEMENTS[element_name(tensor_type(op.inputs[0]).element_type)].bits
    terms = _terms(op, weights)
    if terms is None or bits > 16 or (op.result is not value and terms[0].size != 1):
        return None
    scale = terms[0].astype(np.float64)
    return scale if (scale > 0).all() else None


def _outside(value: SSAValue) -> SSAValue:
    """The network's value of a kernel's argument; others as they are."""
    while isinstance(block := value.owner, Block):
        kernel = block.parent_op()
        if not isinstance(kernel, KernelOp):
            break
        value = kernel.inputs[block.args.index(value)]
    return value


def _origin(value: SSAValue) -> Operation | None:
    """The operation that computes a value's elements, within its kernel or before it."""
    while True:
        op = _outside(value).owner
        if isinstance(op, KernelOp):
            value = op.computed
        elif not isinstance(op, Operation) or op.operation not in MOVES:
            return op if isinstance(op, Operation) else None
        else:
            value = op.inputs[0]


def _terms(op: Operation, weights: WeightSource) -> tuple[Array, Array] | None:
    """The scale and the zero point of a ``dequantise_linear``; None where they are computed."""
    scale = _constant(op.inputs[1], weights)
    zero = np.array(op.get("zero", 0))
    if len(op.inputs) > 2:
        given = _constant(op.inputs[2], weights)
        if given is None:
            return None
        zero = given
    return None if scale is None else (scale, zero)


def _constant(value: SSAValue, weights: WeightSource) -> Array | None:
    op = _outside(value).owner
    return weights.get(op.symbol.data) if isinstance(op, WeightOp) else None
