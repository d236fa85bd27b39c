"""Instructions on elements, one by one or pair by pair; compiled.

Elements go through the unit in 64-bit numbers, a chunk at a time: read, combined, finished (shift,
accumulation, saturation), written. The README has the meaning of each step.
"""

from __future__ import annotations

import numpy as np

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.functions import (
    EXP,
    LOG,
    decay,
    interpolate,
    powers,
    saturate16,
)
from tilewright.targets.cambricon.simulate.state import Array, Chip

CHUNK = 1024
"""Elements that are on their way at a time."""

TABLE_ELEMENTS = 512
"""Places of one table."""


@compiled_together
def read(
    chip: Chip, address: int, width: int, left: int, wrap: bool, count: int, values: Array
) -> None:
    """Elements of ``width`` bytes, times 2**left; wrapped to 32 bits if ``wrap``."""
    # Slices, whose indices cannot be negative, so that the loops become vector instructions.
    values = values[:count]
    if width == 2:
        narrow = chip.short[address >> 1 : (address >> 1) + count]
        for i in range(count):
            values[i] = np.int64(narrow[i])
    elif width == 4:
        wide = chip.wide[address >> 2 : (address >> 2) + count]
        for i in range(count):
            values[i] = np.int64(wide[i])
    else:
        long = chip.long[address >> 3 : (address >> 3) + count]
        for i in range(count):
            values[i] = long[i]
    if left > 0:
        for i in range(count):
            values[i] <<= left
        if wrap:
            wrap32(values, count)


@compiled_together
def wrap32(values: Array, count: int) -> None:
    """Integers modulo 2**32, in place."""
    for i in range(count):
        values[i] = np.int64(np.int32(values[i]))


@compiled_together
def shifted(values: Array, count: int, shift: int) -> None:
    """Divided by 2**shift, half rounding up, in place (numerics.fixed.shift_right_rounded)."""
    if shift > 62:
        for i in range(count):
            values[i] = 0
    elif shift > 0:
        half = np.int64(1) << (shift - 1)
        for i in range(count):
            values[i] = (values[i] + half) >> shift
    elif shift < 0:
        left = min(-shift, 32)
        for i in range(count):
            values[i] <<= left


@compiled_together
def write(
    chip: Chip, address: int, width: int, accumulate: bool, count: int, values: Array
) -> None:
    """Elements of ``width`` bytes, after adding the old ones: 16 bits saturate, others wrap."""
    values = values[:count]
    if width == 2:
        narrow = chip.short[address >> 1 : (address >> 1) + count]
        if accumulate:
            for i in range(count):
                values[i] += np.int64(narrow[i])
        for i in range(count):
            narrow[i] = np.int16(saturate16(values[i]))
    elif width == 4:
        wide = chip.wide[address >> 2 : (address >> 2) + count]
        if accumulate:
            for i in range(count):
                wide[i] = np.int32(values[i] + np.int64(wide[i]))
        else:
            for i in range(count):
                wide[i] = np.int32(values[i])
    else:
        long = chip.long[address >> 3 : (address >> 3) + count]
        for i in range(count):
            long[i] = values[i] + long[i] if accumulate else values[i]


@compiled_together
def combine(opcode: int, minimum: bool, a: Array, b: Array, count: int) -> None:
    """The formula of an instruction on pairs, into ``a``."""
    if opcode == 0x30 or opcode == 0x24 or opcode == 0x34:  # VAV, MAM, VAS
        for i in range(count):
            a[i] += b[i]
    elif opcode == 0x31 or opcode == 0x25:  # VSV, MSM
        for i in range(count):
            a[i] -= b[i]
    elif opcode == 0x32 or opcode == 0x23:  # VMV, MMS
        for i in range(count):
            a[i] *= b[i]
    elif opcode == 0x40:  # VGT
        for i in range(count):
            a[i] = 1 if a[i] > b[i] else 0
    elif opcode == 0x41:  # VE
        for i in range(count):
            a[i] = 1 if a[i] == b[i] else 0
    elif opcode == 0x42:  # VAND
        for i in range(count):
            a[i] &= b[i]
    elif opcode == 0x43:  # VOR
        for i in range(count):
            a[i] |= b[i]
    elif opcode == 0x44:  # VNOT
        for i in range(count):
            a[i] = 1 if a[i] == 0 else 0
    elif opcode == 0x45 and minimum:  # VGTM
        for i in range(count):
            a[i] = min(a[i], b[i])
    elif opcode == 0x45:
        for i in range(count):
            a[i] = max(a[i], b[i])


@compiled_together
def divide(a: Array, b: Array, count: int, shift: int, width: int) -> None:
    """floor(a / 2**shift / b + 1/2) into ``a``.

    Division by 0 gives the largest number of ``width`` bytes with a's sign, or 0.
    """
    shifted(a, count, shift)
    largest = (np.int64(1) << (8 * width - 2)) * 2 - 1
    for i in range(count):
        over, under = a[i], b[i]
        if under == 0:
            a[i] = largest if over > 0 else (-largest - 1 if over < 0 else 0)
        else:
            if under < 0:
                over, under = -over, -under
            # under is negative still only if it is the least number: its half is exact.
            doubled = max(2 * under, 1)
            a[i] = (2 * over + under) // doubled


@compiled_together
def on_elements(opcode: int, bits: int, n: Array, chip: Chip) -> None:
    """Execute the instruction at hand, element by element; its operands are in ``n``."""
    out, width, total = n[at.OUT], n[at.WIDTH], n[at.COUNT]
    first, width0 = n[at.FIRST], n[at.WIDTH0]
    second, width1 = n[at.SECOND], n[at.WIDTH1]
    accumulate, shift = bool(bits >> 6 & 1), shift_of(bits)
    left0, left1 = bits >> 19 & 31, bits >> 24 & 31
    wrap = width != 8 and width0 != 8 and width1 != 8
    number = bits >> 15 & 15
    place = n[at.BASES + at.TABLES] // 2 + number * TABLE_ELEMENTS
    table = chip.short[place : place + TABLE_ELEMENTS]
    size = CHUNK
    if _overtakes(out, width, first, width0, total) or (
        width1 > 0 and _overtakes(out, width, second, width1, total)
    ):
        # A result lies on inputs of later elements: all are read before the first is written.
        size = max(total, 1)
    a, b = chip.room[0], chip.room[1]
    if width1 == 0:
        for i in range(min(size, total)):
            b[i] = n[at.VALUE]
    for start in range(0, total, size):
        count = min(size, total - start)
        read(chip, first + start * width0, width0, left0, wrap, count, a)
        if width1 > 0:
            read(chip, second + start * width1, width1, left1, wrap, count, b)
        if opcode == 0x33:
            if number > 0:
                powers(table, a, b, count, shift)
            else:
                divide(a, b, count, shift, width)
        elif opcode == 0x35 and bits >> 30 & 1:
            decay(a, count, shift)
        else:
            if opcode == 0x35 or opcode == 0x36:
                if number > 0:
                    interpolate(table, a, count)
                else:
                    interpolate(EXP if opcode == 0x35 else LOG, a, count)
            else:
                combine(opcode, bool(bits >> 29 & 1), a, b, count)
                if wrap:
                    wrap32(a, count)
            shifted(a, count, shift)
        write(chip, out + start * width, width, accumulate, count, a)


@compiled_together
def _overtakes(out: int, out_width: int, source: int, width: int, count: int) -> bool:
    """Return True if writing elements in order would overwrite some that are yet to be read."""
    apart = out + count * out_width <= source or source + count * width <= out
    follows = out <= source and out_width <= width
    return not (apart or follows)


@compiled_together
def reduced(opcode: int, n: Array, chip: Chip) -> int:
    """The sum of products modulo 2**32 (VDOT), or the greatest or least (VMAX, VMIN)."""
    count, width0, width1 = n[at.COUNT], n[at.WIDTH0], n[at.WIDTH1]
    total = np.int64(0)
    if opcode == 0x39:
        total = np.int64(-(1 << 31))
    elif opcode == 0x3A:
        total = np.int64((1 << 31) - 1)
    a, b = chip.room[0], chip.room[1]
    for start in range(0, count, CHUNK):
        part = min(CHUNK, count - start)
        read(chip, n[at.FIRST] + start * width0, width0, 0, False, part, a)
        if width1 > 0:
            read(chip, n[at.SECOND] + start * width1, width1, 0, False, part, b)
            for i in range(part):
                total += a[i] * b[i]
        elif opcode == 0x39:
            for i in range(part):
                total = max(total, a[i])
        else:
            for i in range(part):
                total = min(total, a[i])
    return int(np.int32(total))


@compiled_together
def shift_of(bits: int) -> int:
    """The modifier ``shift``: seven bits, signed."""
    value = bits >> 7 & 127
    return value - 128 if value >= 64 else value
