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
    table = np.zeros((words.size, places.COLUMNS), np.int64)
    opcode = (words >> np.uint64(WORD_BITS - OPCODE_BITS)).astype(np.int64)
    table[:, places.OPCODE] = opcode
    table[:, places.BITS] = words & np.uint64((1 << 32) - 1)
    table[:, places.KERNEL] = 0 if kernels is None else kernels
    wrong = np.ones(words.size, np.bool_)
    for number in np.unique(opcode).tolist():
        instruction = BY_OPCODE.get(number)
        if instruction is None:
            continue
        rows = np.flatnonzero(opcode == number)
        chosen = words[rows]
        wrong[rows] = (chosen & np.uint64(~instruction.mask & (1 << WORD_BITS) - 1)) != 0
        fields = [_field(chosen, low, REGISTERS - 1) for low in instruction.places.values()]
        for index, field in enumerate(fields):
            table[rows, places.REGISTERS + index] = field
        table[rows, places.FIELDS] = len(fields)
        immediate = np.zeros(rows.size, np.int64)
        if instruction.immediate_low is not None:
            low32 = _field(chosen, instruction.immediate_low, (1 << 32) - 1)
            immediate = low32.astype(np.uint32).astype(np.int32).astype(np.int64)
        table[rows, places.IMMEDIATE] = immediate
        if instruction.flagged:
            flags = _field(chosen, IMMEDIATE_FLAG.low, 1)
            table[rows, places.FLAG] = flags
            table[rows, places.FIELDS] -= flags
            wrong[rows] |= np.where(flags, fields[-1] != 0, immediate != 0)
        for first, second in EXCLUSIVE:
            if first in instruction.by_name and second in instruction.by_name:
                both = (1 << instruction.by_name[first].low) | (
                    1 << instruction.by_name[second].low
                )
                wrong[rows] |= (chosen & np.uint64(both)) == np.uint64(both)
    if wrong.any():
        index = int(np.argmax(wrong))
        word = int(words[index])
        instruction = BY_OPCODE.get(word >> (WORD_BITS - OPCODE_BITS))
        reason = (
            f"is no valid {instruction.mnemonic}"
            if instruction is not None
            else "has no known opcode"
        )
        raise refuse("isa-word", f"{word:#018x} {reason}", f"word {index}")
    return table


def _field(words: Array, low: int, mask: int) -> Array:
    return (words >> np.uint64(low) & np.uint64(mask)).astype(np.int64)
