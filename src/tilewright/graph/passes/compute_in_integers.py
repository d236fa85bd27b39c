"""compute-in-integers: what lies between quantise and dequantise operations becomes integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate
from tilewright.graph.passes.editing import (
    Rewriter,
    compiler,
    constant,
    erase,
    merge_weights,
    only_user,
    operations_of,
    replace,
    sweep,
    users,
)
from tilewright.graph.passes.integers import RULES, maps
from tilewright.graph.passes.integers.computed_scales import computed_scales, with_bias
from tilewright.graph.passes.integers.products import computed_sums, sums_of
from tilewright.graph.passes.integers.reals import BYTES, activation_dtype, ending_of, real_of
from tilewright.graph.passes.own import passes_of
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of
from tilewright.machine.numbers import MULTIPLIED, integers_of, multiplied_integers

_VIEWS = ("reshape", "transpose")

_MOVING = (*_VIEWS, "slice", "max_pool")
"""Operations of one operand that choose among its integers, whatever their sign."""


@dataclass(frozen=True)
class ComputeInIntegers(ModulePass):
    """Turn dequantise_linear -> float operations -> quantise_linear into integer operations.

    Before::

        %1 = graph.dequantise_linear %x, %sx, %zx : tensor<1x3x8x8xui8>, ...
        %2 = graph.dequantise_linear %w, %sw, %zw : tensor<32x3x3x3xi8>, ...
        %3 = graph.conv %1, %2, %b : ...
        %4 = graph.relu %3
        %5 = graph.quantise_linear %4, %sy, %zy

    After::

        %3 = graph.conv %x, %w, %b32 : ... -> tensor<1x32x6x6xi32>
        %5 = graph.requantise_linear %3, %factor {zero = 0, to = "uint8"}

    Products take uint8 by int8 and add in int32; activations narrow the limits of the result. Sums
    and products of tensors become ``add_linear`` and ``mul_linear``, any function of one number a
    ``look_up``, means sums in int32; what moves elements moves integers. Signed 8-bit activations
    become unsigned with a zero point that is larger by 128; on machines that compute on int8,
    unsigned ones become signed. A product that is not quantised again is dequantised from its int32
    sums, and so is, on processors, one whose scales or zero points are computed. Everything else
    stays in floats between its operations, and so do tensors of 16 bits. Results differ from the
    floats' where those lie within rounding errors of the middle between two integers, by one.
    Written for any scales: importers and quantise passes need only write the form above.
    """

    name = "compute-in-integers"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        for step in operations_of(op):
            if step.operation in _VIEWS:
                _through_view(step, Rewriter(context, step))
        for step in operations_of(op):
            if step.operation == "quantise_linear":
                _as_products_take(step, context)
        products = multiplied_integers(context.machine)
        if products is None:
            products = frozenset(MULTIPLIED)
            _all_integers(op, context)
        else:
            for step in operations_of(op):
                _with_bias(step, Rewriter(context, step))
        for step in operations_of(op):
            if _multiplied(step) in products:
                _dequantised_sums(step, Rewriter(context, step))
        sweep(network_of(op))
        merge_weights(network_of(op))


def _all_integers(module: ModuleOp, ctx: CompilerContext) -> None:
    """Integers between any operation and the next one that has a rule."""
    for step in operations_of(module):
        if step.operation == "quantise_linear" and step.result.first_use is not None:
            integers = _integers(step, ctx)
            if integers is not None:
                replace(step, integers)
    sweep(network_of(module))
    for step in operations_of(module):
        if step.operation == "look_up":
            maps.into_limits(step, ctx)


def _integers(op: Operation, ctx: CompilerContext) -> SSAValue | None:
    """The integers that a ``quantise_linear`` gives, computed as such; None where that fails."""
    ended = ending_of(op, ctx)
    if ended is None:
        return None
    value, ending = ended
    table = maps.function_of_one(value, ending, ctx)
    if table is not None:
        return table
    anchor = value.owner
    rule = RULES.get(anchor.operation) if isinstance(anchor, Operation) else None
    if rule is None or not isinstance(anchor, Operation):
        return None
    return rule(anchor, ending, Rewriter(ctx, op, anchor))


def _as_products_take(op: Operation, ctx: CompilerContext) -> None:
    """8-bit integers that are only moved and dequantised become those of the other sign that the
    machine's products take, their zero point moved by 128."""
    zero, wanted = constant(op.inputs[2], ctx), activation_dtype(ctx)
    if zero is None or zero.dtype not in BYTES or zero.dtype == wanted:
        return
    readers = _readers(op.result, ctx)
    if not readers:
        return
    shift = int(np.iinfo(wanted).min) - int(np.iinfo(zero.dtype).min)

    def moved(array: Array, at: Rewriter) -> SSAValue:
        return at.weight((array.astype(np.int16) + shift).astype(wanted), "zero")

    at = Rewriter(ctx, op)
    flipped: dict[SSAValue, SSAValue] = {
        op.result: at.make("quantise_linear", *op.inputs[:2], moved(zero, at))
    }
    for reader in readers:
        value, at = flipped[reader.inputs[0]], Rewriter(ctx, reader)
        if reader.operation == "dequantise_linear":
            origin = constant(reader.inputs[2], ctx)
            assert origin is not None
            back = at.make("dequantise_linear", value, reader.inputs[1], moved(origin, at))
            reader.result.replace_all_uses_with(back)
        else:
            flipped[reader.result] = at.make(reader.operation, value, **reader.values)
    for old in reversed([op, *readers]):
        erase(old)


def _readers(value: SSAValue, ctx: CompilerContext) -> list[Operation]:
    """Every operation that moves or dequantises a value of integers, readers after what they read;
    none if anything else reads it."""
    readers: list[Operation] = []
    for reader in users(value):
        if not isinstance(reader, Operation) or reader.inputs[0] is not value:
            return []
        later: list[Operation] = []
        if reader.operation in _MOVING:
            later = _readers(reader.result, ctx)
            if not later:
                return []
        elif reader.operation != "dequantise_linear" or constant(reader.inputs[2], ctx) is None:
            return []
        readers += [reader, *later]
    return readers


def _through_view(op: Operation, at: Rewriter) -> None:
    """A view of dequantised integers is a view of integers, dequantised."""
    real = real_of(op.inputs[0], at.ctx)
    source = op.inputs[0].owner
    if real is None or not isinstance(source, Operation):
        return
    array = at.constant(real.value)
    if array is None:
        if real.plain and only_user(source.result) is op and not shape_of(source.inputs[1]):
            view = at.make(op.operation, real.value, **op.values)
            at.replace(at.make("dequantise_linear", view, *source.inputs[1:]))
        return
    parts = [array, np.broadcast_to(real.scale, array.shape)]
    parts.append(np.broadcast_to(real.zero.astype(array.dtype), array.shape))
    integers, scale, zero = (np.asarray(op.evaluate(part)) for part in parts)
    constants = (integers, _reduced(scale), _reduced(zero))
    operands = [at.weight(part, at.node) for part in constants]
    at.replace(at.make("dequantise_linear", *operands))


def _reduced(array: Array) -> Array:
    """An array without the axes along which it does not vary (their extent becomes 1)."""
    for axis in range(array.ndim):
        first = array.take([0], axis)
        if bool((array == first).all()):
            array = first
    return array


def _multiplied(op: Operation) -> str:
    """Return the name that primitives have for an operation: ``depthwise_conv`` for convolutions of
    one channel per group."""
    return candidate(op).operation if op.operation == "conv" else op.operation


def _with_bias(op: Operation, at: Rewriter) -> None:
    """A matrix product takes the constant row that is added to it alone as its bias."""
    step = only_user(op.result) if op.operation == "matmul" and len(op.inputs) == 2 else None
    if not isinstance(step, Operation) or step.operation != "add":
        return
    (other,) = (value for value in step.inputs if value is not op.result)
    row, columns = at.constant(other), shape_of(op.result)[-1]
    if row is None or row.size != columns or row.shape[-1:] != (columns,):
        return
    bias = at.weight(row.reshape(-1), ".bias")
    at_sum = Rewriter(at.ctx, step, op)
    at_sum.replace(at_sum.make("matmul", *op.inputs, bias, **op.values))


def _dequantised_sums(op: Operation, at: Rewriter) -> None:
    """A product whose result stays a float: its int32 sums, dequantised."""
    # Machines that multiply integers of their own take constant scales.
    value = computed_scales(op, at.ctx) if integers_of(at.machine) is None else None
    if value is not None:
        at.replace(value)
        return
    if real_of(op.inputs[0], at.ctx) is None or real_of(op.inputs[1], at.ctx) is None:
        return
    sums = sums_of(op, at)
    both = passes_of(at.machine).multiplies_computed_integers()
    if sums is None and op.operation == "matmul" and both:
        sums = computed_sums(op, at)
    if sums is None:
        return
    scale = at.weight(sums.scale, ".scale")
    if sums.biased:
        zero = at.weight(np.zeros((), np.int32), ".zero")
        at.replace(at.make("dequantise_linear", sums.value, scale, zero))
    else:
        # The zero point is stated, so that all that an epilogue reads beside the sums are floats.
        value = at.make("dequantise_linear", sums.value, scale, zero=0)
        at.replace(with_bias(value, op, at))
