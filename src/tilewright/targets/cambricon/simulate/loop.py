"""The loop: one instruction after the other, its values and its time together; compiled.

An instruction's values are computed when it enters the queue, in the program's order: the queue's
check of dependences makes the hardware's results the same. Time is kept beside it by queue.py.
"""

from __future__ import annotations

import numpy as np

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import operands, products, queue
from tilewright.targets.cambricon.simulate.borrow import borrowed
from tilewright.targets.cambricon.simulate.elements import (
    on_elements,
    reduced,
    shift_of,
    shifted,
)
from tilewright.targets.cambricon.simulate.places import touch
from tilewright.targets.cambricon.simulate.scalar import calculate
from tilewright.targets.cambricon.simulate.shadow import look
from tilewright.targets.cambricon.simulate.state import (
    BITS,
    BRANCH,
    COUNTS,
    DIVISION,
    DONE,
    ERROR_ADDRESS,
    EVENTS,
    FETCH,
    FIELDS,
    FIRST,
    FLAG,
    FULL,
    IMMEDIATE,
    KERNEL,
    MAIN,
    MORE,
    MOVE_BYTES,
    NOW,
    OPCODE,
    OUT,
    PC,
    PENDING,
    READY,
    REFILL,
    REGISTER,
    REGISTERS,
    STEPS,
    TIME_ONLY,
    Array,
    State,
)

WORD_BYTES = 8
BARRIER_BIT = 14
TRANSFER_BARRIER_BIT = 5


@compiled_together
def run(p: Array, s: State, stop: int, budget: int) -> int:
    """Execute from the next word until word ``stop`` is next, or ``budget`` instructions are done.

    Returns DONE, MORE, FULL (no room for events), or what is wrong with the next word.
    """
    p, visited = borrowed(p), s.visited
    n, t, known = borrowed(s.n), borrowed(s.t), borrowed(s.known)
    kernels, events = borrowed(s.kernels), borrowed(s.events)
    chip, chip16 = borrowed(s.chip), borrowed(s.chip16)
    chip32, chip64, main = borrowed(s.chip32), borrowed(s.chip64), borrowed(s.main)
    room, sums, shadow = borrowed(s.room), borrowed(s.sums), borrowed(s.shadow)
    recent, races = borrowed(s.recent), borrowed(s.races)
    pc = n[PC]
    status = MORE
    for _ in range(budget):
        if pc == stop:
            break
        if events.shape[0] > 0 and n[EVENTS] + 1 >= events.shape[0]:
            status = FULL
            break
        opcode = p[pc, OPCODE]
        if not visited[pc]:
            visited[pc] = True
            n[FETCH] += WORD_BYTES
        if t[NOW] < t[PENDING]:
            for i in range(p[pc, FIELDS]):
                t[NOW] = max(t[NOW], t[READY + p[pc, REGISTERS + i]])
        target = pc + 1
        if opcode >= 0x50 or opcode == 0x18:
            status = _scalar(p, pc, n)
            t[NOW] += 1
        elif opcode <= 0x02:
            target = _branch(p, pc, n, t)
            status = DONE
            if target < 0 or target > p.shape[0]:
                n[ERROR_ADDRESS] = target
                status = BRANCH
        elif opcode == 0x16 or opcode == 0x17:
            status = _scalar_memory(p, pc, n, known, main)
            if status == DONE:
                queue.scalar_access(n, t, kernels, events, pc, p[pc, KERNEL])
        else:
            transfers = 0x10 <= opcode <= 0x14 and opcode != 0x12
            if p[pc, BITS] >> (TRANSFER_BARRIER_BIT if transfers else BARRIER_BIT) & 1:
                queue.barrier(n, t)
                status = DONE
            else:
                status = _checked(p, pc, n, t, known)
                if status == DONE:
                    if n[TIME_ONLY]:
                        pass
                    elif transfers:
                        _copy(opcode, n, chip, main)
                    else:
                        _values(p, pc, n, chip16, chip32, chip64, room, sums)
                    if shadow.shape[0] > 0:
                        look(n, shadow, recent, races, pc)
                    end = queue.issue(n, t, kernels, events, pc, p[pc, KERNEL])
                    if opcode == 0x37 or opcode == 0x39 or opcode == 0x3A:
                        t[READY + p[pc, REGISTERS]] = end
                        t[PENDING] = max(t[PENDING], end)
        if status != DONE:
            break
        n[STEPS] += 1
        n[COUNTS + opcode] += 1
        status = MORE
        pc = target
    n[PC] = pc
    return DONE if status == MORE and pc == stop else status


@compiled_together
def _checked(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """Look up the operands of an instruction of the queue; DONE, or what is wrong."""
    opcode = p[pc, OPCODE]
    if 0x10 <= opcode <= 0x14 and opcode != 0x12:
        return operands.transfer(p, pc, n, known)
    if 0x20 <= opcode <= 0x22:
        return operands.product(p, pc, n, t, known)
    if opcode == 0x38:
        return operands.random(p, pc, n, t, known)
    if opcode == 0x37 or opcode == 0x39 or opcode == 0x3A:
        return operands.reduction(p, pc, n, t, known)
    return operands.elements(p, pc, n, t, known)


@compiled_together
def _values(
    p: Array,
    pc: int,
    n: Array,
    chip16: Array,
    chip32: Array,
    chip64: Array,
    room: Array,
    sums: Array,
) -> None:
    """Compute what an instruction of a unit computes."""
    opcode, bits = p[pc, OPCODE], p[pc, BITS]
    if opcode == 0x20 or opcode == 0x21:
        products.product(opcode, bits, n, chip16, chip32, chip64, room, sums)
    elif opcode == 0x22:
        products.outer(bits, n, chip16, chip32, chip64, room)
    elif opcode == 0x38:
        products.random(bits, n, chip16, chip32, chip64, room)
    elif opcode == 0x37 or opcode == 0x39 or opcode == 0x3A:
        value = reduced(opcode, n, chip16, chip32, chip64, room)
        place = REGISTER + p[pc, REGISTERS]
        if opcode == 0x37:
            room[0, 0] = value
            shifted(room[0], 1, shift_of(bits))
            value = room[0, 0] + (n[place] if bits >> 6 & 1 else 0)
        n[place] = np.int64(np.int32(value))
    else:
        on_elements(opcode, bits, n, chip16, chip32, chip64, room)


@compiled_together
def _copy(opcode: int, n: Array, chip: Array, main: Array) -> None:
    """Move a transfer's bytes."""
    size = n[MOVE_BYTES]
    near, far = chip[n[OUT] : n[OUT] + size], main[n[FIRST] : n[FIRST] + size]
    if opcode == 0x11 or opcode == 0x14:
        for i in range(size):
            far[i] = near[i]
    else:
        for i in range(size):
            near[i] = far[i]


@compiled_together
def _scalar(p: Array, pc: int, n: Array) -> int:
    """Execute a scalar calculation; return a failure's code if it divides by zero."""
    opcode = p[pc, OPCODE]
    first, last = n[REGISTER + p[pc, REGISTERS + 1]], n[REGISTER + p[pc, REGISTERS + 2]]
    if p[pc, FLAG]:
        last = p[pc, IMMEDIATE]
    elif opcode == 0x18:
        last = first
    if opcode == 0x53 and last == 0:
        return DIVISION
    shift = p[pc, BITS] >> 1 & 31 if opcode == 0x52 or opcode == 0x53 else 0
    n[REGISTER + p[pc, REGISTERS]] = calculate(opcode, first, last, shift)
    return DONE


@compiled_together
def _branch(p: Array, pc: int, n: Array, t: Array) -> int:
    """Return the target of a branch, and advance the time by its cycles.

    The pipeline expects branches backwards to be taken and others not; J with a number it knows.
    """
    jump = p[pc, OPCODE] == 0x01
    last = p[pc, REGISTERS] if jump else p[pc, REGISTERS + 1]
    offset = p[pc, IMMEDIATE] if p[pc, FLAG] else n[REGISTER + last]
    taken = jump or n[REGISTER + p[pc, REGISTERS]] > 0
    foreseen = (jump or taken == (offset < 0)) if p[pc, FLAG] else not taken
    t[NOW] += 1.0 if foreseen else 1.0 + t[REFILL]
    return pc + offset if taken else pc + 1


@compiled_together
def _scalar_memory(p: Array, pc: int, n: Array, known: Array, main: Array) -> int:
    """SLOAD and SSTORE: 32 bits of main memory."""
    load = p[pc, OPCODE] == 0x16
    address = n[REGISTER + p[pc, REGISTERS + 1]] + p[pc, IMMEDIATE]
    status = touch(n, known, 0, MAIN, address, 1, 4, not load)
    if status != DONE:
        return status
    n[MOVE_BYTES] = 4
    value = n[REGISTER + p[pc, REGISTERS]] & 0xFFFFFFFF
    if load:
        value = 0
    for i in range(4):
        if load:
            value |= np.int64(main[address + i]) << (8 * i)
        else:
            main[address + i] = np.uint8((value >> (8 * i)) & 0xFF)
    if load:
        n[REGISTER + p[pc, REGISTERS]] = np.int64(np.int32(value))
    return DONE
