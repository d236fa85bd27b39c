"""Instructions of the queue: operands looked up in registers, checked, and timed; compiled.

What is found goes to the places of the instruction at hand in ``n``; values are computed after.
"""

from __future__ import annotations

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.functions import POWERS_WANTED, TABLE_WANTED
from tilewright.targets.cambricon.simulate.places import mark, touch
from tilewright.targets.cambricon.simulate.state import Array

TABLE_BYTES = 1024
"""The bytes of one table."""


@compiled_together
def _width(bits: int, wide: int, long: int) -> int:
    """Bytes of an element from the bits of two modifiers."""
    if bits >> wide & 1:
        return 4
    return 8 if bits >> long & 1 else 2


@compiled_together
def _rows(t: Array, count: int) -> int:
    """Rows of lanes that ``count`` elements fill."""
    lanes = int(t[at.LANES])
    return (count + lanes - 1) // lanes


@compiled_together
def transfer(p: Array, pc: int, n: Array, known: Array) -> int:
    """VLOAD, VSTORE, MLOAD, MSTORE: one range on the chip, one in main memory."""
    opcode, bits = p[pc, at.OPCODE], p[pc, at.BITS]
    width = 4 if bits & 1 else 2
    table = bits >> 1 & 15 if opcode == 0x10 else 0
    near = n[at.REGISTER + p[pc, at.REGISTERS]]
    count = n[at.REGISTER + p[pc, at.REGISTERS + 1]]
    far = n[at.REGISTER + p[pc, at.REGISTERS + 2]] + p[pc, at.IMMEDIATE]
    store = opcode == 0x11 or opcode == 0x14
    memory, unit, move = at.VSM, at.VECTOR_DMA, at.VLOAD
    if opcode > 0x12:
        memory, unit, move = at.MSM, at.MATRIX_DMA, at.MLOAD
    if store:
        move = at.VSTORE if memory == at.VSM else at.MSTORE
    if table > 0:
        memory, near, move = at.TABLES, table * TABLE_BYTES, at.TABLE_LOAD
        if count * width > TABLE_BYTES:
            n[at.ERROR_ADDRESS] = table
            n[at.ERROR_BYTES] = count * width
            return at.TABLE
    status = touch(n, known, 0, memory, near, count, width, not store)
    if status == at.DONE:
        status = touch(n, known, 1, at.MAIN, far, count, width, store)
    if status != at.DONE:
        return status
    n[at.UNIT], n[at.ACCESS_COUNT], n[at.MOVE], n[at.MOVE_BYTES] = unit, 2, move, count * width
    n[at.OUT], n[at.FIRST] = n[at.BASES + memory] + near, far
    if not store:
        mark(known, n[at.OUT], n[at.OUT] + count * width)
    if table > 0:
        n[at.TABLE_SIZE + table] = count * width // 2
    return at.DONE


@compiled_together
def product(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """MMV, VMM and OP: two inputs of 16 bits; the result may be wide."""
    opcode, bits = p[pc, at.OPCODE], p[pc, at.BITS]
    width = 4 if bits & 1 else 2
    r0, r1 = n[at.REGISTER + p[pc, at.REGISTERS]], n[at.REGISTER + p[pc, at.REGISTERS + 1]]
    r2, r3 = n[at.REGISTER + p[pc, at.REGISTERS + 2]], n[at.REGISTER + p[pc, at.REGISTERS + 3]]
    r4 = n[at.REGISTER + p[pc, at.REGISTERS + 4]]
    if opcode == 0x22:
        target, size = at.MSM, r2 * r4
        n[at.FIRST], n[at.COUNT], n[at.SECOND], n[at.COUNT1] = r1, r2, r3, r4
        status = touch(n, known, 0, at.VSM, r1, r2, 2, False)
        if status == at.DONE:
            status = touch(n, known, 1, at.VSM, r3, r4, 2, False)
    else:
        target, size = at.VSM, r1
        n[at.FIRST], n[at.COUNT1], n[at.SECOND], n[at.COUNT] = r3, r4, r2 + n[at.BASES + at.MSM], r1
        status = touch(n, known, 0, at.VSM, r3, r4, 2, False)
        if status == at.DONE:
            status = touch(n, known, 1, at.MSM, r2, r1 * r4 if r1 >= 0 else -1, 2, False)
    if status == at.DONE and bits >> 6 & 1:
        status = touch(n, known, 2, target, r0, size, width, False)
    if status == at.DONE:
        status = touch(n, known, 2, target, r0, size, width, True)
    if status != at.DONE:
        return status
    n[at.UNIT], n[at.ACCESS_COUNT], n[at.WIDTH] = at.MATRIX, 3, width
    n[at.OUT] = n[at.BASES + target] + r0
    n[at.CYCLES] = max(_rows(t, n[at.COUNT]) * _rows(t, n[at.COUNT1]), 1)
    mark(known, n[at.OUT], n[at.OUT] + size * width)
    return at.DONE


@compiled_together
def reduction(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """VDOT, VMAX and VMIN: the result is a register."""
    opcode, bits = p[pc, at.OPCODE], p[pc, at.BITS]
    count = n[at.REGISTER + p[pc, at.REGISTERS + 1]]
    first = n[at.REGISTER + p[pc, at.REGISTERS + 2]]
    width0, width1 = _width(bits, 1, 4), 0
    status = touch(n, known, 0, at.VSM, first, count, width0, False)
    if opcode == 0x37:
        width0, width1 = 4 if bits >> 1 & 1 else 2, 4 if bits >> 2 & 1 else 2
        n[at.SECOND] = n[at.REGISTER + p[pc, at.REGISTERS + 3]]
        status = touch(n, known, 0, at.VSM, first, count, width0, False)
        if status == at.DONE:
            status = touch(n, known, 1, at.VSM, n[at.SECOND], count, width1, False)
    n[at.UNIT], n[at.ACCESS_COUNT], n[at.COUNT] = at.VECTOR, 2 if width1 else 1, count
    n[at.FIRST], n[at.WIDTH0], n[at.WIDTH1] = first, width0, width1
    n[at.CYCLES] = max(_rows(t, count) * (2 if width0 == 8 else 1), 1)
    return status


@compiled_together
def random(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """RV: nothing but a result."""
    width = 4 if p[pc, at.BITS] & 1 else 2
    out, count = n[at.REGISTER + p[pc, at.REGISTERS]], n[at.REGISTER + p[pc, at.REGISTERS + 1]]
    status = touch(n, known, 0, at.VSM, out, count, width, True)
    if status == at.DONE:
        n[at.UNIT], n[at.ACCESS_COUNT], n[at.COUNT], n[at.OUT], n[at.WIDTH] = (
            at.VECTOR,
            1,
            count,
            out,
            width,
        )
        n[at.CYCLES] = max(_rows(t, count), 1)
        mark(known, out, out + count * width)
    return status


@compiled_together
def elements(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """Instructions on elements of VSM, or of MSM."""
    opcode, bits = p[pc, at.OPCODE], p[pc, at.BITS]
    memory, unit = at.VSM, at.VECTOR
    if opcode == 0x15 or opcode >> 4 == 2:
        memory, unit = at.MSM, at.MATRIX
    scaled = opcode == 0x34 or opcode == 0x23
    pair = not scaled and p[pc, at.FIELDS] == 4
    width, width0 = _width(bits, 0, 3), _width(bits, 1, 4)
    width1 = _width(bits, 2, 5) if pair else 0
    out, count = n[at.REGISTER + p[pc, at.REGISTERS]], n[at.REGISTER + p[pc, at.REGISTERS + 1]]
    first, last = n[at.REGISTER + p[pc, at.REGISTERS + 2]], n[at.REGISTER + p[pc, at.REGISTERS + 3]]
    status = touch(n, known, 0, memory, first, count, width0, False)
    if status == at.DONE and pair:
        status = touch(n, known, 1, memory, last, count, width1, False)
    accesses = 3 if pair else 2
    if status == at.DONE and bits >> 6 & 1:
        status = touch(n, known, accesses - 1, memory, out, count, width, False)
    if status == at.DONE:
        status = touch(n, known, accesses - 1, memory, out, count, width, True)
    number = bits >> 15 & 15
    looks_up = number > 0 and (opcode == 0x33 or opcode == 0x35 or opcode == 0x36)
    if status == at.DONE and looks_up:
        wanted = POWERS_WANTED if opcode == 0x33 else TABLE_WANTED
        status = touch(n, known, accesses, at.TABLES, number * TABLE_BYTES, wanted, 2, False)
        accesses += 1
        if n[at.TABLE_SIZE + number] < wanted:
            n[at.ERROR_ADDRESS] = number
            status = at.TABLE
    if status != at.DONE:
        return status
    base = n[at.BASES + memory]
    n[at.UNIT], n[at.ACCESS_COUNT], n[at.COUNT], n[at.VALUE] = unit, accesses, count, last
    n[at.OUT], n[at.FIRST], n[at.SECOND] = base + out, base + first, base + last
    n[at.WIDTH], n[at.WIDTH0], n[at.WIDTH1] = width, width0, width1
    rows = _rows(t, count)
    if memory == at.MSM:
        rows = _rows(t, rows)
    if opcode == 0x33 and number > 0:
        rows *= 4
    elif width == 8 or width0 == 8 or width1 == 8:
        rows *= 2
    n[at.CYCLES] = max(rows, 1)
    mark(known, base + out, base + out + count * width)
    return at.DONE
