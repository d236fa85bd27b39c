"""The simulated machine's state, as arrays that the compiled loop works on.

Everything that changes is in here, so that a run can stop at any word and go on: between kernels,
when a buffer of events is full, or to let the caller look. Numbers share two arrays, ``n`` for
integers and ``t`` for times; the names below are places in them. (Few arrays make compiled code
small: numba passes each as seven values.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any
"""A NumPy array; numba infers the element types."""

VSM, MSM, TABLES, MAIN = range(4)
"""The memories, as numbers; the first three share one array."""

SCALAR, VECTOR, MATRIX, VECTOR_DMA, MATRIX_DMA = range(5)
"""The units, as numbers, in the order of ``formats.UNITS``."""

VLOAD, VSTORE, MLOAD, MSTORE, TABLE_LOAD, SCALAR_MOVE = range(6)
"""Numbers of the kinds of instructions that move bytes through main memory."""

DONE, MORE, FULL, BOUNDS, ALIGNMENT, UNINITIALISED, SIZE, BRANCH, DIVISION, TABLE = range(10)
"""Causes for which the loop returns: the end, the budget spent, events full, or an error."""

OPCODE, REGISTERS, FIELDS, IMMEDIATE, FLAG, BITS, KERNEL, COLUMNS = 0, 1, 6, 7, 8, 9, 10, 11
"""Columns of a program taken apart: opcode, five register numbers, how many of them the word uses,
the immediate and whether it stands for the last register, the low 32 bits, and the kernel."""

# Places in n.
PC, STEPS, FETCH, EVENTS, EPOCH, RACES, LOST, ACCESSES, ISSUED, RANDOM = range(10)
"""The next word; instructions executed; bytes of words still to be fetched; events recorded;
barriers passed; races found, and whether some were not looked for; accesses to main memory since
the last barrier; the place of the next start in the ring of starts; RV's state."""
ERROR_MEMORY, ERROR_ADDRESS, ERROR_BYTES = 10, 11, 12
UNIT, ACCESS_COUNT, CYCLES, MOVE, MOVE_BYTES = 13, 14, 15, 16, 17
"""The current instruction: its unit, accesses, cycles; a transfer's move and bytes."""
OUT, WIDTH, FIRST, WIDTH0, SECOND, WIDTH1, COUNT, COUNT1, VALUE = 18, 19, 20, 21, 22, 23, 24, 25, 26
"""The operands of the instruction: addresses in the array of the chip, bytes of elements (0: none),
numbers of elements, and a scalar."""
TIME_ONLY = 27
"""True if values are left out: the time alone is wanted, which no value changes."""
REGISTER = 32
TABLE_SIZE = 96
"""Elements that each of 16 tables holds."""
RANGE_COUNT, RANGES = 112, 120
"""Accesses of each unit's last instruction, up to four: memory, first byte, the byte after the
last, whether it is written."""
ACCESS = 200
"""Accesses of the current instruction, as in RANGES."""
EVENT, OWNER, MOVED, COUNTS = 216, 224, 232, 240
"""The event and kernel of each unit's running transfer; bytes by move; instructions by opcode."""
SIZES, BASES, INTEGERS = 496, 500, 504
"""Bytes of each memory, and where it begins in the array of the chip."""

# Places in t.
NOW, LAST_START, PENDING, DMA_TIME = range(4)
"""Cycles in which the next instruction issues; the last one left the queue; up to which a register
may be awaited; up to which the transfers' bytes are counted."""
LANES, BANDWIDTH, REFILL, RATE, LATENCY = 8, 9, 10, 11, 17
"""The machine: a rate and a latency for each of six moves."""
UNIT_END, LEFT, DATA, FLOW, STARTED, ENDED, PLAN, BUSY = 24, 32, 34, 36, 38, 40, 42, 44
"""Cycle in which each unit ends its work. Of the two transfers: bytes left (0: none runs), the
data's first moment, its own rate, its start; and room for two ends and two plans. Cycles of each
unit."""
READY, STARTS = 64, 128
"""Cycles in which each register is written; in which the last instructions left the queue, a ring
of its depth."""

KERNEL_START, KERNEL_END, KERNEL_BYTES, KERNEL_BUSY, KERNEL_COLUMNS = 0, 1, 2, 3, 8
EVENT_WORD, EVENT_UNIT, EVENT_KERNEL, EVENT_BYTES, EVENT_START, EVENT_END, EVENT_COLUMNS = range(7)


class Chip(NamedTuple):
    """The memories on the chip, one after the other: VSM, MSM and the tables."""

    data: Array
    """Bytes of the memories; then the same as numbers of 16, 32 and 64 bits."""
    short: Array
    wide: Array
    long: Array
    room: Array
    """Two rows for elements on their way through a unit."""


class State(NamedTuple):
    """The arrays that hold the simulator's state."""

    n: Array
    t: Array
    chip: Chip
    main: Array
    known: Array
    """A bit for every two bytes of the chip that were written, 64 in a number."""
    visited: Array
    """Words that were fetched."""
    kernels: Array
    events: Array
    sums: Array
    """Room for the sums of a product, 32 bits each."""
    shadow: Array
    """Last accesses of every two bytes on the chip, for the search for races; may be empty."""
    recent: Array
    """Accesses to main memory since the last barrier."""
    races: Array
