"""read-short-floats: products read numbers of 16 bits as they are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.dialect import NetworkOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import (
    VIEWS,
    Rewriter,
    bytes_of,
    compiler,
    make,
    operations_of,
    producer,
    sweep,
    use_instead,
)
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue, bf16, f16, f32, i16
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.numerics.operators import operators

PRODUCTS = operators("product")

LARGEST_FOLDED = 1 << 18
"""Bytes of float32 up to which a constant that no product reads is widened at compile time."""


@dataclass(frozen=True)
class ReadShortFloats(ModulePass):
    """Let operations read numbers of 16 bits themselves, instead of copies in float32.

    Before::

        %1 = graph.cast %x {to = "float32"} : (tensor<1x64x56x56xbf16>) -> tensor<1x64x56x56xf32>
        %2 = graph.cast %w {to = "float32"} : (tensor<64x64x1x1xbf16>) -> tensor<64x64x1x1xf32>
        %3 = graph.conv %1, %2

    After::

        %3 = graph.conv %x, %w : (tensor<1x64x56x56xbf16>, tensor<64x64x1x1xbf16>) -> ...xf32

    The result is the same: products of 16-bit floats are float32 (graph.conv, graph.matmul).
    Products read both operands so where a primitive of the machine takes both, else the weights
    alone; so they do where weights are int16 with one scale for all, with which the result is then
    multiplied (fixed point on machines that compute in float32). A gather from a table in 16 bits
    reads the table, and what it found is widened; the largest of a window are the same in either
    form. Small constants that nothing of this reads are widened here, once. A value that is still
    widened for others is widened by each of them, so that it can be done where it is read.
    """

    name = "read-short-floats"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        network = network_of(op)
        for step in operations_of(op):
            if step.operation in PRODUCTS and not _read_integers(step, context):
                _read(step, context.machine)
            elif (
                step.inputs
                and _short(step.inputs[0]) is not None
                and (
                    step.operation == "gather"
                    or (step.operation == "max_pool" and _takes(step, 0, context.machine))
                )
            ):
                _after(step, Rewriter(context, step))
        sweep(network)
        _widen_constants(network, context)
        _divide(network)
        sweep(network)


def _short(value: SSAValue) -> SSAValue | None:
    """The 16-bit value of which this is a copy in float32; None if it is no such copy."""
    cast = producer(value, "cast")
    if cast is None:
        return None
    source = cast.inputs[0]
    wide = tensor_type(value).element_type == f32
    return source if wide and tensor_type(source).element_type in (f16, bf16) else None


def _read(op: Operation, machine: Machine) -> None:
    """Give a product the operands in 16 bits that a primitive takes; a bias goes along."""
    image, weight = _short(op.inputs[0]), _short(op.inputs[1])
    if weight is None:
        return
    element = tensor_type(weight).element_type
    alike = image is not None and tensor_type(image).element_type == element
    for first in (image, None) if alike else (None,):
        before = list(op.inputs)
        op.operands[1] = weight
        if first is not None:
            op.operands[0] = first
        bias = _short(op.inputs[2]) if len(op.inputs) > 2 else None
        if bias is not None and tensor_type(bias).element_type == element:
            op.operands[2] = bias
        if _fast(op, machine):
            return
        for index, value in enumerate(before):
            op.operands[index] = value


def _takes(op: Operation, index: int, machine: Machine) -> bool:
    """Return True if a primitive with a layout of its own takes an operand in 16 bits."""
    before, short = op.inputs[index], _short(op.inputs[index])
    if short is None:
        return False
    op.operands[index] = short
    fast = _fast(op, machine)
    op.operands[index] = before
    return fast


def _read_integers(op: Operation, context: CompilerContext) -> bool:
    """Let a product read weights of int16 with one scale, which its result is multiplied with.

    The sums are the same but for that factor, a power of two in fixed point; a bias is added after.
    """
    owner, after = producer(op.inputs[1], "dequantise_linear"), op.next_op
    if owner is None:
        return False
    weight, scale, zero = owner.inputs
    at = Rewriter(context, op)
    factor, offset = at.constant(scale), at.constant(zero)
    if tensor_type(op.inputs[0]).element_type != f32 or not isinstance(weight.owner, WeightOp):
        return False
    if tensor_type(weight).element_type != i16 or factor is None or offset is None:
        return False
    if factor.size != 1 or offset.any():
        return False
    before, bias = list(op.inputs), op.inputs[2:]
    op.operands = [op.inputs[0], weight]
    if not _fast(op, context.machine):
        op.operands = before
        return False
    assert after is not None
    uses = list(op.result.uses)
    value, later = at.weight(factor.reshape(()).astype(np.float32), "scale"), at.before(after)
    scaled = later.make("mul", op.result, value)
    if bias:
        added = bias[0]
        if op.operation == "conv":
            added = later.make("reshape", added, shape=(1, shape_of(added)[0], 1, 1))
        scaled = later.make("add", scaled, added)
    use_instead(uses, scaled)
    return True


def _fast(op: Operation, machine: Machine) -> bool:
    """Return True if a primitive in vectors takes an operation, groups and all."""
    asked = candidate(op)
    extents = asked.extents
    for primitive in serving(asked, machine):
        split = any(extents.get(d, step) % step for d, step in primitive.multiples.items())
        if "g" in primitive.whole or (primitive.multiples and not ("g" in extents and split)):
            return True
    return False


def _after(op: Operation, at: Rewriter) -> None:
    """Widen an operation's result instead of its first operand."""
    short, after = _short(op.inputs[0]), op.next_op
    assert short is not None and after is not None
    moved = at.make(op.operation, short, *op.inputs[1:], **op.values)
    at.replace(at.before(after).make("cast", moved, to="float32"))


def _widen_constants(network: NetworkOp, context: CompilerContext) -> None:
    """Keep small constants as float32 where that is how they are read."""
    for op in network.operations:
        if op.operation not in ("cast", "dequantise_linear", "reshape"):
            continue
        at = Rewriter(context, op)
        arrays = [at.constant(value) for value in op.inputs]
        owner, constants = op.inputs[0].owner, [array for array in arrays if array is not None]
        wide = tensor_type(op.result).element_type == f32
        if len(constants) < len(arrays) or not wide or bytes_of(op.result) > LARGEST_FOLDED:
            continue
        assert isinstance(owner, WeightOp)
        at.replace(at.weight(op.evaluate(*constants), owner.symbol.data))


def _divide(network: NetworkOp) -> None:
    """A copy in float32 for every reader of a value that others read in 16 bits."""
    for op in network.operations:
        short = _short(op.result)
        if short is None or isinstance(short.owner, WeightOp) or op.operation in VIEWS:
            continue
        uses = [(use.operation, use.index) for use in op.result.uses]
        if sum(1 for _ in short.uses) < 2 or len(uses) < 2:
            continue
        for reader, index in uses[1:]:
            if isinstance(reader, Operation):
                copy = make("cast", [short], {"to": "float32"}, before=reader, like=op)
                reader.operands[index] = copy.result
