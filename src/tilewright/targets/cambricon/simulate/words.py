"""Words taken apart into columns, all at once, for the compiled loop."""

from __future__ import annotations

import numpy as np

from tilewright.errors import refuse
from tilewright.targets.cambricon.formats import IMMEDIATE_FLAG, OPCODE_BITS, WORD_BITS
from tilewright.targets.cambricon.isa import BY_OPCODE, EXCLUSIVE, REGISTERS
from tilewright.targets.cambricon.simulate import state as places
from tilewright.targets.cambricon.simulate.state import Array


def take_apart(words: Array, kernels: Array | None = None) -> Array:
    """The columns of a program; ``kernels`` numbers each word's kernel (all 0 by default).

    Raises TilewrightError (``isa-word``) at the first word that is no instruction.
    """
    words = np.ascontiguousarray(words, np.uint64)
    found = np.zeros((words.size, places.COLUMNS), np.int64)
    opcode = (words >> np.uint64(WORD_BITS - OPCODE_BITS)).astype(np.int64)
    found[:, places.OPCODE] = opcode
    found[:, places.BITS] = words & np.uint64((1 << 32) - 1)
    found[:, places.KERNEL] = 0 if kernels is None else kernels
    wrong = np.ones(words.size, np.bool_)
    for number in np.unique(opcode).tolist():
        one = BY_OPCODE.get(number)
        if one is None:
            continue
        rows = np.flatnonzero(opcode == number)
        chosen = words[rows]
        wrong[rows] = (chosen & np.uint64(~one.mask & (1 << WORD_BITS) - 1)) != 0
        fields = [_field(chosen, low, REGISTERS - 1) for low in one.places.values()]
        for index, field in enumerate(fields):
            found[rows, places.REGISTERS + index] = field
        found[rows, places.FIELDS] = len(fields)
        immediate = np.zeros(rows.size, np.int64)
        if one.immediate_low is not None:
            low32 = _field(chosen, one.immediate_low, (1 << 32) - 1)
            immediate = low32.astype(np.uint32).astype(np.int32).astype(np.int64)
        found[rows, places.IMMEDIATE] = immediate
        if one.flagged:
            flags = _field(chosen, IMMEDIATE_FLAG.low, 1)
            found[rows, places.FLAG] = flags
            found[rows, places.FIELDS] -= flags
            wrong[rows] |= np.where(flags, fields[-1] != 0, immediate != 0)
        for first, second in EXCLUSIVE:
            if first in one.by_name and second in one.by_name:
                both = (1 << one.by_name[first].low) | (1 << one.by_name[second].low)
                wrong[rows] |= (chosen & np.uint64(both)) == np.uint64(both)
    if wrong.any():
        index = int(np.argmax(wrong))
        word = int(words[index])
        one = BY_OPCODE.get(word >> (WORD_BITS - OPCODE_BITS))
        reason = f"is no valid {one.mnemonic}" if one is not None else "has no known opcode"
        raise refuse("isa-word", f"{word:#018x} {reason}", f"word {index}")
    return found


def _field(words: Array, low: int, mask: int) -> Array:
    return (words >> np.uint64(low) & np.uint64(mask)).astype(np.int64)
