"""Rewriting a convolution's kernel for another method of computing it."""

from __future__ import annotations

from math import prod

from tilewright.graph.dialect import KernelOp, ScratchOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.passes.editing import erase, insert
from tilewright.graph.passes.methods import TRIAL, Form
from tilewright.graph.passes.reanchoring import reanchored
from tilewright.ir import PythonValue, SSAValue, bf16, f32
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of, tensor
from tilewright.numerics import pieces
from tilewright.numerics.winograd import transform_weights


def rewritten(
    kernel: KernelOp, form: Form, elements: int, context: CompilerContext | None
) -> KernelOp:
    """The kernel in another form with so much scratch, in place of the old one.

    Without a context it stands beside the old one, with weights that do not exist: a trial.
    """
    anchor = kernel.operations[0]
    assert isinstance(anchor, ConvOp | MatMulOp)
    outer = dict(zip(kernel.body.block.args, kernel.inputs, strict=True))
    image, weight, *bias = [outer[value] for value in anchor.inputs]  # type: ignore[index]
    owner = weight.owner
    assert isinstance(owner, WeightOp)
    scratch = ScratchOp.of(elements)
    insert(scratch, kernel)
    if form.pieces:
        filters, name, attributes = _split(kernel, anchor, owner, form.pieces, context)
        operands = [image, filters, scratch.result, *bias]
        return reanchored(kernel, name, operands, attributes, replace=context is not None)
    taps = shape_of(weight)[2]
    filters = weight
    if not form.plain:
        shape = (*shape_of(weight)[:2], *(form.tile + taps - 1,) * 2)
        symbol = TRIAL
        if context is not None:
            array = transform_weights(context.weights.get(owner.symbol.data), form.tile)
            symbol = context.weights.add(array, "winograd")
        transformed = WeightOp.of(symbol, tensor(shape))
        insert(transformed, kernel)
        filters = transformed.result
    attributes = {
        "pads": anchor.integers("pads"),
        "tile": form.tile,
        "taps": taps,
        "group": anchor.integer("group", 1, 2**24),
    }
    return reanchored(
        kernel,
        "winograd_conv",
        [image, filters, scratch.result, *bias],
        attributes,
        replace=context is not None,
    )


def _split(
    kernel: KernelOp,
    anchor: Operation,
    owner: WeightOp,
    count: int,
    context: CompilerContext | None,
) -> tuple[SSAValue, str, dict[str, PythonValue]]:
    """Weights for so many pieces, and the operation that takes them, with its attributes."""
    shape = shape_of(owner.result)
    attributes: dict[str, PythonValue] = {}
    name = "piece_matmul"
    if isinstance(anchor, ConvOp):
        name = "piece_conv"
        names = ("pads", "strides", "dilations")
        attributes = {"window": shape[2:], **{n: anchor.integers(n) for n in names}}
    elif not anchor.get("transpose_b", False):
        shape = shape[::-1]
    element, parts = (bf16, pieces.TWO) if count == pieces.TWO else (f32, 1)
    size = pieces.groups(shape[1]) * prod(shape[2:]) * parts * pieces.GROUP
    symbol = TRIAL
    if context is not None:
        array = context.weights.get(owner.symbol.data)
        if name == "piece_matmul" and not anchor.get("transpose_b", False):
            array = array.T
        symbol = context.weights.add(pieces.split_weights(array, count), "pieces")
    split = WeightOp.of(symbol, tensor((shape[0], size), element))
    insert(split, kernel)
    return split.result, name, attributes


def forget(trial: KernelOp) -> None:
    """Erase a trial with its weights and scratch."""
    owners = [value.owner for value in trial.inputs]
    erase(trial)
    for op in owners:
        if isinstance(op, ScratchOp) or (isinstance(op, WeightOp) and op.symbol.data == TRIAL):
            erase(op)
