"""Matrix products with constant weights."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, finite, producer
from tilewright.graph.passes.rules.scaling import affine_of
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.machine import Machine

ROW_MAJOR = ("", "NCHW", "any")
"""Layouts in which an image flattens at no cost."""


def _weight_of(op: Operation, at: Rewriter) -> Array | None:
    """The weights [co, ci] of a product of any rank with one constant matrix."""
    array = at.constant(op.inputs[1])
    if array is None or array.ndim != 2:
        return None
    return array if op.get("transpose_b", False) else np.swapaxes(array, 0, 1)


def _bias_of(op: Operation, at: Rewriter) -> Array | None:
    """The bias per column in float64, zeros if there is none; None if it is not of that kind."""
    columns = shape_of(op.result)[-1]
    if len(op.inputs) == 2:
        return np.zeros(columns)
    array = at.constant(op.inputs[2])
    if array is None or any(extent != 1 for extent in array.shape[:-1]):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (columns,))


def keep_weight_transposed(op: Operation, at: Rewriter) -> bool:
    """Constant weights are kept as [co, ci], and the bias as [co]: one form for all machines."""
    weight, bias = _weight_of(op, at), _bias_of(op, at)
    if weight is None or bias is None:
        return False
    kept = len(op.inputs) == 2 or shape_of(op.inputs[2]) == bias.shape
    if op.get("transpose_b", False) and kept:
        return False
    return at.replace(_rebuilt(op, weight, bias if len(op.inputs) == 3 else None, at))


def take_transposed(op: Operation, at: Rewriter) -> bool:
    """matmul(x, transpose(w)), w computed: the product reads w along its last axis, without a copy.

    Of a transpose that moves other axes, too, what is left keeps rows together. Done where products
    read their operands behind caches, in either order of axes.
    """
    turned, machine = producer(op.inputs[1], "transpose"), at.machine
    if turned is None:
        return False
    stored = [p.operands.get("weight") for p in machine.primitives_for("matmul")]
    if not stored or any(place is None or place.memory != machine.main for place in stored):
        return False
    *order, rows, columns = turned.integers("permutation")
    if rows != len(order) + 1 or op.get("transpose_b", False):
        return False
    kept = turned.inputs[0]
    if columns != len(order) or order != sorted(order):
        moves = Rewriter(at.ctx, turned)
        kept = moves.make("transpose", kept, permutation=(*order, columns, rows))
    values = {**op.values, "transpose_b": True}
    return at.replace(at.make("matmul", op.inputs[0], kept, *op.inputs[2:], **values), turned)


def into_product(op: Operation, at: Rewriter) -> bool:
    """matmul(x, w) * c, / c, + c, - c and c - matmul(x, w) with c per column: new weights and
    bias."""
    affine = affine_of(op, "matmul", at)
    if affine is None:
        return False
    product, factor, shift = affine
    weight, bias = _weight_of(product, at), _bias_of(product, at)
    if weight is None or bias is None:
        return False
    with np.errstate(over="ignore"):
        scaled = (weight.astype(np.float64) * factor[:, None]).astype(np.float32)
        moved = (bias * factor + shift).astype(np.float32)
    if not finite(scaled, moved):
        return False
    return at.replace(_rebuilt(product, scaled, moved, at), product)


def _rebuilt(product: Operation, weight: Array, bias: Array | None, at: Rewriter) -> SSAValue:
    """A product with other constants."""
    operands = [product.inputs[0], *_constants(weight, bias, at.of(product))]
    return at.of(product).make("matmul", *operands, **{**product.values, "transpose_b": True})


def _constants(weight: Array, bias: Array | None, at: Rewriter) -> list[SSAValue]:
    """The weights of a product, and its bias if it has one, as operands."""
    operands = [at.weight(weight, ".weight")]
    if bias is not None:
        kind = np.int32 if weight.dtype.itemsize == 1 else np.float32
        operands.append(at.weight(bias.astype(kind), ".bias"))
    return operands


def image_product_to_convolution(op: Operation, at: Rewriter) -> bool:
    """A product on a flattened image is a convolution whose kernel is the whole image.

    Done where the machine keeps images in another order than rows of pixels, since flattening
    would then move every element. The convolution's [n, co, 1, 1] is reshaped to [n, co].
    """
    weight, flat = _weight_of(op, at), producer(op.inputs[0], "reshape")
    if weight is None or flat is None:
        return False
    image = shape_of(flat.inputs[0])
    if len(image) != 4 or image[2] * image[3] == 1 or len(shape_of(op.result)) != 2:
        return False
    if op.get("transpose_a", False) or image[0] != shape_of(op.result)[0]:
        return False
    if weight.shape[1] != image[1] * image[2] * image[3]:
        return False
    bias = _bias_of(op, at)
    if bias is None or not _keeps_images_apart(at.machine, image, weight.shape[0]):
        return False
    kernel = weight.reshape(weight.shape[0], *image[1:])
    constants = _constants(kernel, bias if len(op.inputs) == 3 else None, at)
    conv = at.make("conv", flat.inputs[0], *constants)
    return at.replace(at.make("reshape", conv, shape=shape_of(op.result)), flat)


def flatten_rows(op: Operation, at: Rewriter) -> bool:
    """Several matrices [b, m, ci] times one constant matrix are [b*m, ci] times it: one product.

    Done where the machine's products take one matrix of a batch at a time: all rows fill its tiles
    then. The reshapes move nothing, as products have row-major operands there.
    """
    rows = shape_of(op.inputs[0])
    if len(rows) < 3 or rows[0] == 1 or not _takes_one_of_a_batch(at.machine):
        return False
    if _weight_of(op, at) is None or op.get("transpose_a", False):
        return False
    if any(len(shape_of(bias)) != 1 for bias in op.inputs[2:]):
        return False
    matrix = at.reshaped(op.inputs[0], (prod(rows[:-1]), rows[-1]))
    product = at.make("matmul", matrix, *op.inputs[1:], **op.values)
    return at.replace(at.make("reshape", product, shape=shape_of(op.result)))


def _takes_one_of_a_batch(machine: Machine) -> bool:
    """Return True if every primitive for a product takes one index of its outermost batch dim."""
    serving = machine.primitives_for("matmul")
    return bool(serving) and all(primitive.limits.get("b0") == 1 for primitive in serving)


def _keeps_images_apart(machine: Machine, image: tuple[int, ...], outputs: int) -> bool:
    """Return True if the primitive for such a convolution takes images in an order of its own."""
    extents = dict(zip(("n", "ci", "kh", "kw"), image, strict=True)) | {"co": outputs}
    serving = [p for p in machine.primitives if p.serves("conv", extents)]
    return bool(serving) and machine.layout_of(serving[0], "input", 4) not in ROW_MAJOR
