"""Matrix products with constant weights."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import (
    add_weight,
    constant,
    erase,
    finite,
    make,
    replace,
    reshaped,
)
from tilewright.graph.passes.rules.scaling import affine_of
from tilewright.ir import PythonValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of
from tilewright.machine import Machine

ROW_MAJOR = ("", "NCHW", "any")
"""Layouts in which an image flattens at no cost."""


def _weight_of(op: Operation, ctx: CompilerContext) -> Array | None:
    """The weights [co, ci] of a product of any rank with one constant matrix."""
    if op.operation != "matmul":
        return None
    array = constant(op.inputs[1], ctx)
    if array is None or array.ndim != 2:
        return None
    return array if op.get("transpose_b", False) else np.swapaxes(array, 0, 1)


def _bias_of(op: Operation, ctx: CompilerContext) -> Array | None:
    """The bias per column in float64, zeros if there is none; None if it is not of that kind."""
    columns = shape_of(op.result)[-1]
    if len(op.inputs) == 2:
        return np.zeros(columns)
    array = constant(op.inputs[2], ctx)
    if array is None or any(extent != 1 for extent in array.shape[:-1]):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (columns,))


def keep_weight_transposed(op: Operation, ctx: CompilerContext) -> bool:
    """Constant weights are kept as [co, ci], and the bias as [co]: one form for all machines."""
    weight, bias = _weight_of(op, ctx), _bias_of(op, ctx) if op.operation == "matmul" else None
    if weight is None or bias is None:
        return False
    kept = len(op.inputs) == 2 or shape_of(op.inputs[2]) == bias.shape
    if op.get("transpose_b", False) and kept:
        return False
    _rebuild(op, op, weight, bias if len(op.inputs) == 3 else None, ctx)
    return True


def take_transposed(op: Operation, ctx: CompilerContext) -> bool:
    """matmul(x, transpose(w)), w computed: the product takes w by its last axis, as it lies.

    Of a transpose that moves other axes, too, what is left keeps rows together. Done where products
    read their operands behind caches, in either order of axes.
    """
    turned = op.inputs[1].owner if op.operation == "matmul" else None
    if not isinstance(turned, Operation) or turned.operation != "transpose":
        return False
    machine = ctx.machine
    stored = [p.operands.get("weight") for p in machine.primitives_for("matmul")]
    if not stored or any(place is None or place.memory != machine.main for place in stored):
        return False
    *order, rows, columns = turned.integers("permutation")
    if rows != len(order) + 1 or op.get("transpose_b", False):
        return False
    kept = turned.inputs[0]
    if columns != len(order) or order != sorted(order):
        moves: dict[str, PythonValue] = {"permutation": (*order, columns, rows)}
        kept = make("transpose", [kept], moves, before=turned, like=turned).result
    values = {**op.values, "transpose_b": True}
    operands = [op.inputs[0], kept, *op.inputs[2:]]
    replace(op, make("matmul", operands, values, before=op, like=op).result)
    if turned.result.first_use is None:
        erase(turned)
    return True


def merge_bias(op: Operation, ctx: CompilerContext) -> bool:
    """matmul(x, w) + c with c per column: the bias."""
    return op.operation in ("add", "sub") and _fold(op, ctx)


def scale_columns(op: Operation, ctx: CompilerContext) -> bool:
    """matmul(x, w) * c with c per column: new weights and bias."""
    return op.operation in ("mul", "div") and _fold(op, ctx)


def _fold(op: Operation, ctx: CompilerContext) -> bool:
    affine = affine_of(op, "matmul", ctx)
    if affine is None:
        return False
    product, factor, shift = affine
    weight, bias = _weight_of(product, ctx), _bias_of(product, ctx)
    if weight is None or bias is None:
        return False
    with np.errstate(over="ignore"):
        scaled = (weight.astype(np.float64) * factor[:, None]).astype(np.float32)
        moved = (bias * factor + shift).astype(np.float32)
    if not finite(scaled, moved):
        return False
    _rebuild(product, op, scaled, moved, ctx)
    erase(product)
    return True


def _rebuild(
    product: Operation, op: Operation, weight: Array, bias: Array | None, ctx: CompilerContext
) -> None:
    """Put a product with other constants in the place of ``op``."""
    name = product.node_name or "matmul"
    operands = [product.inputs[0], add_weight(ctx, weight, op, f"{name}.weight")]
    if bias is not None:
        kind = np.int32 if weight.dtype.itemsize == 1 else np.float32
        operands.append(add_weight(ctx, bias.astype(kind), op, f"{name}.bias"))
    values = {**product.values, "transpose_b": True}
    replace(op, make("matmul", operands, values, before=op, like=product).result)


def image_product_to_convolution(op: Operation, ctx: CompilerContext) -> bool:
    """A product on a flattened image is a convolution whose kernel is the whole image.

    Done where the machine keeps images in another order than rows of pixels, since flattening
    would then move every element. The convolution's [n, co, 1, 1] is reshaped to [n, co].
    """
    weight = _weight_of(op, ctx)
    flat = op.inputs[0].owner if weight is not None else None
    if weight is None or not isinstance(flat, Operation) or flat.operation != "reshape":
        return False
    image = shape_of(flat.inputs[0])
    if len(image) != 4 or image[2] * image[3] == 1 or len(shape_of(op.result)) != 2:
        return False
    if op.get("transpose_a", False) or image[0] != shape_of(op.result)[0]:
        return False
    if weight.shape[1] != image[1] * image[2] * image[3]:
        return False
    bias = _bias_of(op, ctx)
    if bias is None or not _keeps_images_apart(ctx.machine, image, weight.shape[0]):
        return False
    name = op.node_name or "matmul"
    kernel = weight.reshape(weight.shape[0], *image[1:])
    operands = [flat.inputs[0], add_weight(ctx, kernel, op, f"{name}.weight")]
    if len(op.inputs) == 3:
        kind = np.int32 if weight.dtype.itemsize == 1 else np.float32
        operands.append(add_weight(ctx, bias.astype(kind), op, f"{name}.bias"))
    conv = make("conv", operands, before=op, like=op)
    reshaped = make("reshape", [conv.result], {"shape": shape_of(op.result)}, before=op, like=op)
    replace(op, reshaped.result)
    if flat.result.first_use is None:
        erase(flat)
    return True


def flatten_rows(op: Operation, ctx: CompilerContext) -> bool:
    """Several matrices [b, m, ci] times one constant matrix are [b*m, ci] times it: one product.

    Done where the machine's products take one matrix of a batch at a time: all rows fill its tiles
    then. The reshapes move nothing, as products have row-major operands there.
    """
    rows = shape_of(op.inputs[0]) if op.operation == "matmul" else ()
    if len(rows) < 3 or rows[0] == 1 or not _takes_one_of_a_batch(ctx.machine):
        return False
    if _weight_of(op, ctx) is None or op.get("transpose_a", False):
        return False
    if any(len(shape_of(bias)) != 1 for bias in op.inputs[2:]):
        return False
    matrix = reshaped(op.inputs[0], (prod(rows[:-1]), rows[-1]), op)
    product = make("matmul", [matrix, *op.inputs[1:]], op.values, before=op, like=op)
    unflattened = make(
        "reshape", [product.result], {"shape": shape_of(op.result)}, before=op, like=op
    )
    replace(op, unflattened.result)
    return True


def _takes_one_of_a_batch(machine: Machine) -> bool:
    """Return True if every primitive for a product takes one index of its outermost batch dim."""
    serving = machine.primitives_for("matmul")
    return bool(serving) and all(primitive.limits.get("b0") == 1 for primitive in serving)


def _keeps_images_apart(machine: Machine, image: tuple[int, ...], outputs: int) -> bool:
    """Return True if the primitive for such a convolution takes images in an order of its own."""
    extents = dict(zip(("n", "ci", "kh", "kw"), image, strict=True)) | {"co": outputs}
    serving = [p for p in machine.primitives if p.serves("conv", extents)]
    return bool(serving) and machine.layout_of(serving[0], "input", 4) not in ROW_MAJOR
