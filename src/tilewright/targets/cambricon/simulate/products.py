"""Products of 16-bit matrices and vectors, in 32-bit sums that wrap; compiled.

The inner loops become the processor's vectors: the matrix unit's 1024 products a cycle are most of
what a simulation computes.
"""

from __future__ import annotations

import numpy as np

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.elements import shift_of, shifted, write
from tilewright.targets.cambricon.simulate.state import Array, Chip


@compiled_together
def matrix_vector(
    chip16: Array, matrix: int, vector: int, outs: int, ins: int, sums: Array
) -> None:
    """sums[o] = sum over i of m[o, i] * v[i]."""
    x = chip16[vector : vector + ins]
    for o in range(outs):
        row = chip16[matrix + o * ins : matrix + (o + 1) * ins]
        total = np.int32(0)
        for i in range(ins):
            total = np.int32(total + np.int32(row[i]) * np.int32(x[i]))
        sums[o] = total


@compiled_together
def vector_matrix(
    chip16: Array, matrix: int, vector: int, outs: int, ins: int, sums: Array
) -> None:
    """sums[o] = sum over i of v[i] * m[i, o]; four rows at a time, so that sums move less often."""
    sums = sums[:outs]
    for o in range(outs):
        sums[o] = 0
    x = chip16[vector : vector + ins]
    rows = chip16[matrix : matrix + ins * outs].reshape(ins, outs)
    whole = ins // 4 * 4
    for i in range(0, whole, 4):
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        p, q, r, s = np.int32(x[i]), np.int32(x[i + 1]), np.int32(x[i + 2]), np.int32(x[i + 3])
        for o in range(outs):
            first = np.int32(a[o]) * p + np.int32(b[o]) * q
            sums[o] = np.int32(sums[o] + first + np.int32(c[o]) * r + np.int32(d[o]) * s)
    for i in range(whole, ins):
        p, a = np.int32(x[i]), rows[i]
        for o in range(outs):
            sums[o] = np.int32(sums[o] + np.int32(a[o]) * p)


@compiled_together
def product(opcode: int, bits: int, n: Array, chip: Chip, sums: Array) -> None:
    """MMV and VMM; the matrix is ``SECOND``."""
    outs, ins, out = n[at.COUNT], n[at.COUNT1], n[at.OUT]
    matrix, vector = n[at.SECOND] >> 1, n[at.FIRST] >> 1
    if opcode == 0x20:
        matrix_vector(chip.short, matrix, vector, outs, ins, sums)
    else:
        vector_matrix(chip.short, matrix, vector, outs, ins, sums)
    if n[at.WIDTH] == 4 and shift_of(bits) == 0:  # by far the most frequent
        wide = chip.wide[out >> 2 : (out >> 2) + outs]
        if bits >> 6 & 1:
            for o in range(outs):
                wide[o] = np.int32(wide[o] + sums[o])
        else:
            for o in range(outs):
                wide[o] = sums[o]
        return
    values = chip.room[0, :outs]
    for o in range(outs):
        values[o] = np.int64(sums[o])
    put(bits, out, n[at.WIDTH], outs, chip, values)


@compiled_together
def put(bits: int, address: int, width: int, count: int, chip: Chip, sums: Array) -> None:
    """Shift sums and write them as elements of ``width`` bytes."""
    shift = shift_of(bits)
    if shift:
        shifted(sums, count, shift)
    write(chip, address, width, bool(bits >> 6 & 1), count, sums)


@compiled_together
def outer(bits: int, n: Array, chip: Chip) -> None:
    """OP: m[i, j] = v0[i] * v1[j], row by row."""
    rows, columns, width = n[at.COUNT], n[at.COUNT1], n[at.WIDTH]
    first, second = n[at.FIRST] // 2, n[at.SECOND] // 2
    values, v1 = chip.room[0, :columns], chip.short[second : second + columns]
    for i in range(rows):
        x = np.int64(chip.short[first + i])
        for j in range(columns):
            values[j] = x * np.int64(v1[j])
        put(bits, n[at.OUT] + i * columns * width, width, columns, chip, values)


@compiled_together
def random(bits: int, n: Array, chip: Chip) -> None:
    """RV: xorshift64*, the upper 15 bits of each number."""
    x = np.uint64(n[at.RANDOM])
    values = chip.room[0]
    for i in range(n[at.COUNT]):
        x ^= x >> np.uint64(12)
        x ^= x << np.uint64(25)
        x ^= x >> np.uint64(27)
        values[i] = np.int64((x * np.uint64(2685821657736338717)) >> np.uint64(49))
    n[at.RANDOM] = np.int64(x)
    put(bits & ~(1 << 6), n[at.OUT], n[at.WIDTH], n[at.COUNT], chip, values)
