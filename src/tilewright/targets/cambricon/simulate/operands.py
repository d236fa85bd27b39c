"""Instructions of the queue: operands looked up in registers, checked, and timed; compiled.

What is found goes to the places of the instruction at hand in ``n``; values are computed after.
"""

from __future__ import annotations

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate.functions import POWERS_WANTED, TABLE_WANTED
from tilewright.targets.cambricon.simulate.places import mark, touch
from tilewright.targets.cambricon.simulate.state import (
    ACCESS_COUNT,
    BASES,
    BITS,
    COUNT,
    COUNT1,
    CYCLES,
    DONE,
    ERROR_ADDRESS,
    ERROR_BYTES,
    FIELDS,
    FIRST,
    IMMEDIATE,
    LANES,
    MAIN,
    MATRIX,
    MATRIX_DMA,
    MLOAD,
    MOVE,
    MOVE_BYTES,
    MSM,
    MSTORE,
    OPCODE,
    OUT,
    REGISTER,
    REGISTERS,
    SECOND,
    TABLE,
    TABLE_LOAD,
    TABLE_SIZE,
    TABLES,
    UNIT,
    VALUE,
    VECTOR,
    VECTOR_DMA,
    VLOAD,
    VSM,
    VSTORE,
    WIDTH,
    WIDTH0,
    WIDTH1,
    Array,
)

TABLE_BYTES = 1024
"""Of one table."""


@compiled_together
def _width(bits: int, wide: int, long: int) -> int:
    """Bytes of an element from the bits of two modifiers."""
    if bits >> wide & 1:
        return 4
    return 8 if bits >> long & 1 else 2


@compiled_together
def _rows(t: Array, count: int) -> int:
    """Rows of lanes that so many elements fill."""
    lanes = int(t[LANES])
    return (count + lanes - 1) // lanes


@compiled_together
def transfer(p: Array, pc: int, n: Array, known: Array) -> int:
    """VLOAD, VSTORE, MLOAD, MSTORE: one range on the chip, one in main memory."""
    opcode, bits = p[pc, OPCODE], p[pc, BITS]
    width = 4 if bits & 1 else 2
    table = bits >> 1 & 15 if opcode == 0x10 else 0
    near = n[REGISTER + p[pc, REGISTERS]]
    count = n[REGISTER + p[pc, REGISTERS + 1]]
    far = n[REGISTER + p[pc, REGISTERS + 2]] + p[pc, IMMEDIATE]
    store = opcode == 0x11 or opcode == 0x14
    memory, unit, move = VSM, VECTOR_DMA, VLOAD
    if opcode > 0x12:
        memory, unit, move = MSM, MATRIX_DMA, MLOAD
    if store:
        move = VSTORE if memory == VSM else MSTORE
    if table > 0:
        memory, near, move = TABLES, table * TABLE_BYTES, TABLE_LOAD
        if count * width > TABLE_BYTES:
            n[ERROR_ADDRESS] = table
            n[ERROR_BYTES] = count * width
            return TABLE
    status = touch(n, known, 0, memory, near, count, width, not store)
    if status == DONE:
        status = touch(n, known, 1, MAIN, far, count, width, store)
    if status != DONE:
        return status
    n[UNIT], n[ACCESS_COUNT], n[MOVE], n[MOVE_BYTES] = unit, 2, move, count * width
    n[OUT], n[FIRST] = n[BASES + memory] + near, far
    if not store:
        mark(known, n[OUT], n[OUT] + count * width)
    if table > 0:
        n[TABLE_SIZE + table] = count * width // 2
    return DONE


@compiled_together
def product(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """MMV, VMM and OP: two inputs of 16 bits; the result may be wide."""
    opcode, bits = p[pc, OPCODE], p[pc, BITS]
    width = 4 if bits & 1 else 2
    r0, r1 = n[REGISTER + p[pc, REGISTERS]], n[REGISTER + p[pc, REGISTERS + 1]]
    r2, r3 = n[REGISTER + p[pc, REGISTERS + 2]], n[REGISTER + p[pc, REGISTERS + 3]]
    r4 = n[REGISTER + p[pc, REGISTERS + 4]]
    if opcode == 0x22:
        target, size = MSM, r2 * r4
        n[FIRST], n[COUNT], n[SECOND], n[COUNT1] = r1, r2, r3, r4
        status = touch(n, known, 0, VSM, r1, r2, 2, False)
        if status == DONE:
            status = touch(n, known, 1, VSM, r3, r4, 2, False)
    else:
        target, size = VSM, r1
        n[FIRST], n[COUNT1], n[SECOND], n[COUNT] = r3, r4, r2 + n[BASES + MSM], r1
        status = touch(n, known, 0, VSM, r3, r4, 2, False)
        if status == DONE:
            status = touch(n, known, 1, MSM, r2, r1 * r4 if r1 >= 0 else -1, 2, False)
    if status == DONE and bits >> 6 & 1:
        status = touch(n, known, 2, target, r0, size, width, False)
    if status == DONE:
        status = touch(n, known, 2, target, r0, size, width, True)
    if status != DONE:
        return status
    n[UNIT], n[ACCESS_COUNT], n[WIDTH] = MATRIX, 3, width
    n[OUT] = n[BASES + target] + r0
    n[CYCLES] = max(_rows(t, n[COUNT]) * _rows(t, n[COUNT1]), 1)
    mark(known, n[OUT], n[OUT] + size * width)
    return DONE


@compiled_together
def reduction(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """VDOT, VMAX and VMIN: the result is a register."""
    opcode, bits = p[pc, OPCODE], p[pc, BITS]
    count = n[REGISTER + p[pc, REGISTERS + 1]]
    first = n[REGISTER + p[pc, REGISTERS + 2]]
    width0, width1 = _width(bits, 1, 4), 0
    status = touch(n, known, 0, VSM, first, count, width0, False)
    if opcode == 0x37:
        width0, width1 = 4 if bits >> 1 & 1 else 2, 4 if bits >> 2 & 1 else 2
        n[SECOND] = n[REGISTER + p[pc, REGISTERS + 3]]
        status = touch(n, known, 0, VSM, first, count, width0, False)
        if status == DONE:
            status = touch(n, known, 1, VSM, n[SECOND], count, width1, False)
    n[UNIT], n[ACCESS_COUNT], n[COUNT] = VECTOR, 2 if width1 else 1, count
    n[FIRST], n[WIDTH0], n[WIDTH1] = first, width0, width1
    n[CYCLES] = max(_rows(t, count) * (2 if width0 == 8 else 1), 1)
    return status


@compiled_together
def random(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """RV: nothing but a result."""
    width = 4 if p[pc, BITS] & 1 else 2
    out, count = n[REGISTER + p[pc, REGISTERS]], n[REGISTER + p[pc, REGISTERS + 1]]
    status = touch(n, known, 0, VSM, out, count, width, True)
    if status == DONE:
        n[UNIT], n[ACCESS_COUNT], n[COUNT], n[OUT], n[WIDTH] = VECTOR, 1, count, out, width
        n[CYCLES] = max(_rows(t, count), 1)
        mark(known, out, out + count * width)
    return status


@compiled_together
def elements(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """Instructions on elements of VSM, or of MSM."""
    opcode, bits = p[pc, OPCODE], p[pc, BITS]
    memory, unit = VSM, VECTOR
    if opcode == 0x15 or opcode >> 4 == 2:
        memory, unit = MSM, MATRIX
    scaled = opcode == 0x34 or opcode == 0x23
    pair = not scaled and p[pc, FIELDS] == 4
    width, width0 = _width(bits, 0, 3), _width(bits, 1, 4)
    width1 = _width(bits, 2, 5) if pair else 0
    out, count = n[REGISTER + p[pc, REGISTERS]], n[REGISTER + p[pc, REGISTERS + 1]]
    first, last = n[REGISTER + p[pc, REGISTERS + 2]], n[REGISTER + p[pc, REGISTERS + 3]]
    status = touch(n, known, 0, memory, first, count, width0, False)
    if status == DONE and pair:
        status = touch(n, known, 1, memory, last, count, width1, False)
    accesses = 3 if pair else 2
    if status == DONE and bits >> 6 & 1:
        status = touch(n, known, accesses - 1, memory, out, count, width, False)
    if status == DONE:
        status = touch(n, known, accesses - 1, memory, out, count, width, True)
    number = bits >> 15 & 15
    looks_up = number > 0 and (opcode == 0x33 or opcode == 0x35 or opcode == 0x36)
    if status == DONE and looks_up:
        wanted = POWERS_WANTED if opcode == 0x33 else TABLE_WANTED
        status = touch(n, known, accesses, TABLES, number * TABLE_BYTES, wanted, 2, False)
        accesses += 1
        if n[TABLE_SIZE + number] < wanted:
            n[ERROR_ADDRESS] = number
            status = TABLE
    if status != DONE:
        return status
    base = n[BASES + memory]
    n[UNIT], n[ACCESS_COUNT], n[COUNT], n[VALUE] = unit, accesses, count, last
    n[OUT], n[FIRST], n[SECOND] = base + out, base + first, base + last
    n[WIDTH], n[WIDTH0], n[WIDTH1] = width, width0, width1
    rows = _rows(t, count)
    if memory == MSM:
        rows = _rows(t, rows)
    if opcode == 0x33 and number > 0:
        rows *= 4
    elif width == 8 or width0 == 8 or width1 == 8:
        rows *= 2
    n[CYCLES] = max(rows, 1)
    mark(known, base + out, base + out + count * width)
    return DONE
