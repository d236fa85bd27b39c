"""Weights quantised in blocks, several numbers in a byte: MatMulNBits and GatherBlockQuantized.

Each block of ``block_size`` numbers has a scale, and maybe a zero point, which is the middle of the
numbers' range where none is given. Weights of products stay in blocks (graph/operations/blocked.py)
if these are whole; others, and tables, are dequantised at import.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tilewright.frontends.moves import block_product
from tilewright.frontends.onnx.lowering import Lowering
from tilewright.frontends.onnx.narrow import unpacked
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.memory.alignment import ceil_div
from tilewright.numerics.blocks import GROUP, LONGEST, Blocks


def known(at: Lowering, index: int) -> Array:
    """A constant that the operator needs at import."""
    array = at.constant(index)
    if array is None:
        raise at.refuse(f"its input {index} is computed at run time; it must be a constant")
    return array


def _sizes(at: Lowering, usual: int = 0) -> tuple[int, int]:
    """The bits of a number and the numbers of a block; ``usual`` where none are stated."""
    bits, block = at.integer("bits", 4), at.integer("block_size", usual)
    if bits not in (2, 4, 8):
        raise at.refuse(f"numbers of {bits} bits; 2, 4 and 8 are possible")
    if block < 1:
        raise at.refuse(f"a block_size of {block}")
    return bits, block


def packed_bytes(at: Lowering, array: Array, index: int) -> NDArray[np.uint8]:
    """The bytes of a packed operand."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize != 1:
        raise at.refuse(f"its input {index} has {array.dtype}, not bytes", code="onnx-dtype")
    return np.ascontiguousarray(array).view(np.uint8)


def matmul_n_bits(at: Lowering) -> SSAValue:
    """a @ dequantised(b).T + bias, with b [N, blocks of K, bytes of a block].

    Operands: a, b, scales [N * blocks], zero points (bytes [N * bytes of the blocks of a row], or
    numbers of the scales' type), an order of groups (refused), a bias [N].
    """
    columns, rows = at.integer("N"), at.integer("K")
    bits, block = _sizes(at)
    if columns < 1 or rows < 1:
        raise at.refuse(f"a weight of {columns} x {rows}")
    if at.has(4):
        raise at.refuse("an order of groups (g_idx) is not read")
    blocks, per_byte = ceil_div(rows, block), 8 // bits
    packed, scales = packed_bytes(at, known(at, 1), 1), known(at, 2)
    each = ceil_div(block, per_byte)
    if packed.size != columns * blocks * each or scales.size != columns * blocks:
        raise at.misfit(
            f"{packed.size} bytes and {scales.size} scales are not those of {columns} x {blocks} "
            f"blocks of {block} numbers of {bits} bits"
        )
    numbers = unpacked(packed.reshape(columns, blocks, each), bits)[..., :block]
    scale = scales.reshape(columns, blocks)
    minima, zero = None, 2 ** (bits - 1)
    if at.has(3):
        scale, zero = scale.astype(np.float32), 0
        minima = -_zero_points(at, (columns, blocks), bits) * scale
    weight = Blocks(numbers.reshape(columns, blocks * block), scale, minima, bits, zero)
    dtype, x = at.dtype(0), at.cast(at.tensor(0), np.float32)
    if blocks * block == rows and block % GROUP == 0 and block <= LONGEST and len(shape_of(x)) > 1:
        product = block_product(at, at.emit("block_round", x, block=block), weight)
    else:
        floats = np.ascontiguousarray(weight.rows()[:, :rows].T)
        product = at.emit("matmul", x, at.weight(floats, f"{at.node.name}.weight"))
    if at.has(5):
        product = at.emit("add", product, at.cast(at.tensor(5), np.float32))
    return at.cast(product, dtype)


def _zero_points(at: Lowering, shape: tuple[int, int], bits: int) -> NDArray[np.float32]:
    """The zero point of each block; packed ones of a row begin with a byte of their own."""
    if not at.has(3):
        return np.full(shape, 2 ** (bits - 1), np.float32)
    array = known(at, 3)
    if array.dtype.kind == "f" and array.size == math.prod(shape):
        return array.reshape(shape).astype(np.float32)
    packed, (rows, blocks) = packed_bytes(at, array, 3), shape
    each = ceil_div(blocks * bits, 8)
    if packed.size != rows * each:
        raise at.misfit(f"{packed.size} bytes are not the zero points of {rows} x {blocks} blocks")
    return unpacked(packed.reshape(rows, each), bits)[:, :blocks].astype(np.float32)


def gather_block_quantized(at: Lowering) -> SSAValue:
    """Parts of a table that is quantised in blocks along an axis, dequantised.

    Operands: the table (bytes with several numbers each along its last axis, or numbers), indices,
    scales, and zero points, which are packed as the table is.
    """
    bits, block = _sizes(at, 128)
    table, scales = known(at, 0), known(at, 2)
    rank = table.ndim
    gathered, along = (
        at.axis(at.integer("gather_axis"), rank),
        at.axis(at.integer("quantize_axis", 1), rank),
    )
    # A table of bytes holds packed numbers; one of 4-bit elements is unpacked when it is read.
    in_bytes = table.dtype == np.uint8
    packs = in_bytes and bits < 8
    numbers = unpacked(table, bits) if packs else table
    sizes = (
        *numbers.shape[:along], ceil_div(numbers.shape[along], block), *numbers.shape[along + 1 :],
    )  # fmt: skip
    if scales.shape != sizes:
        raise at.misfit(f"its scales have shape {list(scales.shape)}, its blocks {list(sizes)}")
    # Without zero points bytes have the middle of their range, 4-bit elements have 0.
    zeros: Array = np.full(sizes, 2 ** (bits - 1) if in_bytes else 0)
    if at.has(3):
        zeros = known(at, 3)
        zeros = unpacked(packed_bytes(at, zeros, 3), bits) if packs else zeros
        zeros = zeros[..., : sizes[-1]]
        if zeros.shape != sizes:
            raise at.misfit(f"its zero points are not those of blocks {list(sizes)}")
    scale, zero = (
        np.repeat(a.astype(np.float32), block, along).take(range(numbers.shape[along]), along)
        for a in (scales, zeros)
    )
    values = ((numbers.astype(np.float32) - zero) * scale).astype(scales.dtype)
    return at.emit(
        "gather", at.weight(values, f"{at.node.name}.table"), at.tensor(1), axis=gathered
    )
