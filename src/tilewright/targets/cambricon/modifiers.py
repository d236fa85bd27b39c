"""The modifiers: what the padding of our words says beyond the published instructions.

Compute instructions have them all at the same bits; transfers, whose padding has six bits, and
scalar instructions have a few of their own.
"""

from __future__ import annotations

from tilewright.targets.cambricon.formats import modifier

WIDE = modifier("wide", 0, 1, "elements of the result have 32 bits and wrap")
WIDE0 = modifier("wide0", 1, 1, "elements of the first input have 32 bits")
WIDE1 = modifier("wide1", 2, 1, "elements of the second input have 32 bits")
LONG = modifier("long", 3, 1, "elements of the result have 64 bits and wrap")
LONG0 = modifier("long0", 4, 1, "elements of the first input have 64 bits")
LONG1 = modifier("long1", 5, 1, "elements of the second input have 64 bits")
ACC = modifier("acc", 6, 1, "adds what the result's place held, after the shift")
SHIFT = modifier(
    "shift",
    7,
    7,
    "divides by 2**N, half rounding up, before the result saturates or wraps",
    signed=True,
)
BARRIER = modifier(
    "barrier", 14, 1, "does nothing, but waits in the queue until all before it have completed"
)
TABLE = modifier("table", 15, 4, "the table that is looked up; 0 is the built-in function")
LEFT0 = modifier("left0", 19, 5, "multiplies elements of the first input by 2**N")
LEFT1 = modifier("left1", 24, 5, "multiplies elements of the second input by 2**N")
MINIMUM = modifier("min", 29, 1, "the minimum in place of the maximum")
DECAY = modifier(
    "decay", 30, 1, "exp(-v / 2**shift) with 16 fraction bits of v >= 0, as softmax takes it"
)

RESULT = (WIDE, LONG, SHIFT, BARRIER)
FIRST = (WIDE0, LONG0, LEFT0)
SECOND = (WIDE1, LONG1, LEFT1)
ELEMENTWISE = (*RESULT, ACC, *FIRST, *SECOND)
"""Of an instruction on elements of two inputs."""
PRODUCT = (WIDE, ACC, SHIFT, BARRIER)
"""Of a product of 16-bit vectors and matrices."""

TRANSFER_WIDE = modifier("wide", 0, 1, "elements have 32 bits")
TRANSFER_TABLE = modifier(
    "table", 1, 4, "fills table N; the size counts its elements, the register of VSM is not used"
)
TRANSFER_BARRIER = modifier("barrier", 5, 1, BARRIER.meaning)
TRANSFER = (TRANSFER_WIDE, TRANSFER_BARRIER)

SCALAR_SHIFT = modifier(
    "shift",
    1,
    5,
    "SMUL: divides the product by 2**N, half rounding up; SDIV: the dividend times 2**N",
)
