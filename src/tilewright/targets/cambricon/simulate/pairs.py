"""A vector times a matrix of 16-bit numbers by pairs of rows, in the processor's own vectors.

Processors multiply two vectors of 16-bit numbers and add neighbours, into sums of 32 bits, in one
instruction (``vpmaddwd``, ``vpdpwssd``, ``smlal``): twice to four times the products of a
multiplication of 32 bits. numba has no vectors, and LLVM does not find the instruction in a loop
whose neighbours lie in two rows. So the loop is written here in LLVM's own terms, as plain
products and sums that wrap: right on every processor, and those of the instruction where there is
one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate.state import Array

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)

# A processor interleaves two vectors within 128 bits: four pairs of each lower half, then upper.
_LANE = 8


def _mask(numbers: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I32, len(numbers)), numbers)


def _unpacked(lanes: int, half: int) -> ir.Constant:
    """Pairs of two vectors of so many lanes: those of the lower (0) or upper (1) half of each."""
    places = [_LANE * lane + 4 * half + i for lane in range(lanes) for i in range(4)]
    return _mask([number for i in places for number in (i, i + _LANE * lanes)])


def _tile(builder: ir.IRBuilder, columns: int, arguments: list[ir.Value]) -> None:
    """Write the loop over pairs of rows, for so many columns of the matrix."""
    matrix, vector, sums, rows, stride = arguments
    step = min(columns, 32)
    lanes, parts = step // _LANE, columns // step
    wide, half = ir.VectorType(_I32, step), ir.VectorType(_I32, step // 2)
    short = ir.VectorType(_I16, step)
    before = builder.block
    body, after = builder.append_basic_block("pairs"), builder.append_basic_block("summed")
    zero, unit = ir.Constant(_I64, 0), ir.Constant(_I64, 1)
    last = builder.sub(rows, unit)
    builder.branch(body)
    builder.position_at_end(body)
    row = builder.phi(_I64)
    row.add_incoming(zero, before)
    running: list[Any] = [builder.phi(half) for _ in range(2 * parts)]
    for phi in running:
        phi.add_incoming(ir.Constant(half, None), before)
    # The last of an odd number of rows is paired with itself, times 0.
    next_row = builder.add(row, unit)
    alone = builder.icmp_signed(">", next_row, last)
    other = builder.select(alone, row, next_row)
    x0 = builder.load(builder.gep(vector, [row]), align=2)
    x1 = builder.load(builder.gep(vector, [other]), align=2)
    x1 = builder.select(alone, ir.Constant(_I16, 0), x1)
    pair = builder.or_(
        builder.zext(x0, _I32), builder.shl(builder.zext(x1, _I32), ir.Constant(_I32, 16))
    )
    splat = builder.insert_element(ir.Constant(half, ir.Undefined), pair, ir.Constant(_I32, 0))
    splat = builder.shuffle_vector(splat, splat, _mask([0] * (step // 2)))
    factors = builder.sext(builder.bitcast(splat, short), wide)
    r0 = builder.gep(matrix, [builder.mul(row, stride)])
    r1 = builder.gep(matrix, [builder.mul(other, stride)])
    even, odd = _mask(list(range(0, step, 2))), _mask(list(range(1, step, 2)))
    totals: list[Any] = []
    for part in range(parts):
        place = ir.Constant(_I64, part * step)
        a, b = (
            builder.load(builder.bitcast(builder.gep(r, [place]), short.as_pointer()), align=2)
            for r in (r0, r1)
        )
        for which in range(2):
            pairs = builder.sext(builder.shuffle_vector(a, b, _unpacked(lanes, which)), wide)
            products = builder.mul(pairs, factors)
            neighbours = builder.add(
                builder.shuffle_vector(products, products, even),
                builder.shuffle_vector(products, products, odd),
            )
            totals.append(builder.add(running[2 * part + which], neighbours))
    following = builder.add(row, ir.Constant(_I64, 2))
    row.add_incoming(following, body)
    for phi, total in zip(running, totals, strict=True):
        phi.add_incoming(total, body)
    builder.cbranch(builder.icmp_signed("<", following, rows), body, after)
    builder.position_at_end(after)
    order = [4 * (i // _LANE) + i % 4 + (step // 2 if i % _LANE >= 4 else 0) for i in range(step)]
    for part in range(parts):
        low, high = totals[2 * part : 2 * part + 2]
        place = builder.gep(sums, [ir.Constant(_I64, part * step)])
        builder.store(
            builder.shuffle_vector(low, high, _mask(order)),
            builder.bitcast(place, wide.as_pointer()),
            align=4,
        )


def _columns(columns: int) -> Any:
    """An intrinsic: sums[o] = sum over i < rows (at least 1) of x[i] * m[i, o]."""

    def typed(_: Any, matrix: Any, vector: Any, sums: Any, rows: Any, stride: Any) -> Any:
        def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointers = [
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
            ]
            _tile(builder, columns, [*pointers, *arguments[3:]])
            return context.get_dummy_value()

        return types.void(matrix, vector, sums, types.int64, types.int64), generated

    return intrinsic(typed)


_128: Any = _columns(128)
_64: Any = _columns(64)
_32: Any = _columns(32)
_16: Any = _columns(16)


@compiled_together
def vector_matrix(
    chip16: Array, matrix: int, vector: int, outs: int, ins: int, sums: Array
) -> None:
    """sums[o] = sum over i of v[i] * m[i, o], modulo 2**32."""
    if outs < 16 or ins == 0:
        _by_rows(chip16, matrix, vector, outs, ins, sums)
        return
    x, rows = chip16[vector : vector + ins], chip16[matrix : matrix + ins * outs]
    o = 0
    while o + 128 <= outs:
        _128(rows[o:], x, sums[o:], ins, outs)
        o += 128
    if o + 64 <= outs:
        _64(rows[o:], x, sums[o:], ins, outs)
        o += 64
    if o + 32 <= outs:
        _32(rows[o:], x, sums[o:], ins, outs)
        o += 32
    while o < outs:
        o = min(o, outs - 16)  # the last columns may be computed twice
        _16(rows[o:], x, sums[o:], ins, outs)
        o += 16


@compiled_together
def _by_rows(chip16: Array, matrix: int, vector: int, outs: int, ins: int, sums: Array) -> None:
    """The same for few columns."""
    sums = sums[:outs]
    for o in range(outs):
        sums[o] = 0
    for i in range(ins):
        x = np.int32(chip16[vector + i])
        row = chip16[matrix + i * outs : matrix + (i + 1) * outs]
        for o in range(outs):
            sums[o] = np.int32(sums[o] + np.int32(np.int32(row[o]) * x))
