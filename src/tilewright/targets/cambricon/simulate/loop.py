"""The loop: one instruction after the other, its values and its time together; compiled.

An instruction's values are computed when it enters the queue, in the program's order: the queue's
check of dependences makes the hardware's results the same. Time is kept beside it by queue.py.
"""

from __future__ import annotations

import numpy as np

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import operands, products, queue
from tilewright.targets.cambricon.simulate import state as at
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
from tilewright.targets.cambricon.simulate.state import Array, Chip, State

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
    data, short, wide = borrowed(s.chip.data), borrowed(s.chip.short), borrowed(s.chip.wide)
    chip = Chip(data, short, wide, borrowed(s.chip.long), borrowed(s.chip.room))
    main, sums, shadow = borrowed(s.main), borrowed(s.sums), borrowed(s.shadow)
    recent, races = borrowed(s.recent), borrowed(s.races)
    pc = n[at.PC]
    status = at.MORE
    for _ in range(budget):
        if pc == stop:
            break
        if events.shape[0] > 0 and n[at.EVENTS] + 1 >= events.shape[0]:
            status = at.FULL
            break
        opcode = p[pc, at.OPCODE]
        if not visited[pc]:
            visited[pc] = True
            n[at.FETCH] += WORD_BYTES
        if t[at.NOW] < t[at.PENDING]:
            for i in range(p[pc, at.FIELDS]):
                t[at.NOW] = max(t[at.NOW], t[at.READY + p[pc, at.REGISTERS + i]])
        target = pc + 1
        if opcode >= 0x50 or opcode == 0x18:
            status = _scalar(p, pc, n)
            t[at.NOW] += 1
        elif opcode <= 0x02:
            target = _branch(p, pc, n, t)
            status = at.DONE
            if target < 0 or target > p.shape[0]:
                n[at.ERROR_ADDRESS] = target
                status = at.BRANCH
        elif opcode == 0x16 or opcode == 0x17:
            status = _scalar_memory(p, pc, n, known, main)
            if status == at.DONE:
                queue.scalar_access(n, t, kernels, events, pc, p[pc, at.KERNEL])
        else:
            transfers = 0x10 <= opcode <= 0x14 and opcode != 0x12
            if p[pc, at.BITS] >> (TRANSFER_BARRIER_BIT if transfers else BARRIER_BIT) & 1:
                queue.barrier(n, t)
                status = at.DONE
            else:
                status = _checked(p, pc, n, t, known)
                if status == at.DONE:
                    if n[at.TIME_ONLY]:
                        pass
                    elif transfers:
                        _copy(opcode, n, chip.data, main)
                    else:
                        _values(p, pc, n, chip, sums)
                    if shadow.shape[0] > 0:
                        look(n, shadow, recent, races, pc)
                    end = queue.issue(n, t, kernels, events, pc, p[pc, at.KERNEL])
                    if opcode == 0x37 or opcode == 0x39 or opcode == 0x3A:
                        t[at.READY + p[pc, at.REGISTERS]] = end
                        t[at.PENDING] = max(t[at.PENDING], end)
        if status != at.DONE:
            break
        n[at.STEPS] += 1
        n[at.COUNTS + opcode] += 1
        status = at.MORE
        pc = target
    n[at.PC] = pc
    return at.DONE if status == at.MORE and pc == stop else status


@compiled_together
def _checked(p: Array, pc: int, n: Array, t: Array, known: Array) -> int:
    """Look up the operands of an instruction of the queue; DONE, or what is wrong."""
    opcode = p[pc, at.OPCODE]
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
def _values(p: Array, pc: int, n: Array, chip: Chip, sums: Array) -> None:
    """Compute what an instruction of a unit computes."""
    opcode, bits = p[pc, at.OPCODE], p[pc, at.BITS]
    if opcode == 0x20 or opcode == 0x21:
        products.product(opcode, bits, n, chip, sums)
    elif opcode == 0x22:
        products.outer(bits, n, chip)
    elif opcode == 0x38:
        products.random(bits, n, chip)
    elif opcode == 0x37 or opcode == 0x39 or opcode == 0x3A:
        value = reduced(opcode, n, chip)
        place = at.REGISTER + p[pc, at.REGISTERS]
        if opcode == 0x37:
            chip.room[0, 0] = value
            shifted(chip.room[0], 1, shift_of(bits))
            value = chip.room[0, 0] + (n[place] if bits >> 6 & 1 else 0)
        n[place] = np.int64(np.int32(value))
    else:
        on_elements(opcode, bits, n, chip)


@compiled_together
def _copy(opcode: int, n: Array, data: Array, main: Array) -> None:
    """Move a transfer's bytes."""
    size = n[at.MOVE_BYTES]
    near, far = data[n[at.OUT] : n[at.OUT] + size], main[n[at.FIRST] : n[at.FIRST] + size]
    if opcode == 0x11 or opcode == 0x14:
        for i in range(size):
            far[i] = near[i]
    else:
        for i in range(size):
            near[i] = far[i]


@compiled_together
def _scalar(p: Array, pc: int, n: Array) -> int:
    """Execute a scalar calculation; return a failure's code if it divides by zero."""
    opcode = p[pc, at.OPCODE]
    first, last = n[at.REGISTER + p[pc, at.REGISTERS + 1]], n[at.REGISTER + p[pc, at.REGISTERS + 2]]
    if p[pc, at.FLAG]:
        last = p[pc, at.IMMEDIATE]
    elif opcode == 0x18:
        last = first
    if opcode == 0x53 and last == 0:
        return at.DIVISION
    shift = p[pc, at.BITS] >> 1 & 31 if opcode == 0x52 or opcode == 0x53 else 0
    n[at.REGISTER + p[pc, at.REGISTERS]] = calculate(opcode, first, last, shift)
    return at.DONE


@compiled_together
def _branch(p: Array, pc: int, n: Array, t: Array) -> int:
    """Return the target of a branch, and advance the time by its cycles.

    The pipeline expects branches backwards to be taken and others not; J with a number it knows.
    """
    jump = p[pc, at.OPCODE] == 0x01
    last = p[pc, at.REGISTERS] if jump else p[pc, at.REGISTERS + 1]
    offset = p[pc, at.IMMEDIATE] if p[pc, at.FLAG] else n[at.REGISTER + last]
    taken = jump or n[at.REGISTER + p[pc, at.REGISTERS]] > 0
    foreseen = (jump or taken == (offset < 0)) if p[pc, at.FLAG] else not taken
    t[at.NOW] += 1.0 if foreseen else 1.0 + t[at.REFILL]
    return pc + offset if taken else pc + 1


@compiled_together
def _scalar_memory(p: Array, pc: int, n: Array, known: Array, main: Array) -> int:
    """SLOAD and SSTORE: 32 bits of main memory."""
    load = p[pc, at.OPCODE] == 0x16
    address = n[at.REGISTER + p[pc, at.REGISTERS + 1]] + p[pc, at.IMMEDIATE]
    status = touch(n, known, 0, at.MAIN, address, 1, 4, not load)
    if status != at.DONE:
        return status
    n[at.MOVE_BYTES] = 4
    value = n[at.REGISTER + p[pc, at.REGISTERS]] & 0xFFFFFFFF
    if load:
        value = 0
    for i in range(4):
        if load:
            value |= np.int64(main[address + i]) << (8 * i)
        else:
            main[address + i] = np.uint8((value >> (8 * i)) & 0xFF)
    if load:
        n[at.REGISTER + p[pc, at.REGISTERS]] = np.int64(np.int32(value))
    return at.DONE
