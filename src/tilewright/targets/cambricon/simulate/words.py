"""Words taken apart into columns, all at once, for the compiled loop."""

from __future__ import annotations

import numpy as np

from tilewright.errors import refuse
from tilewright.targets.cambricon.formats import IMMEDIATE_FLAG, NUMBER
from tilewright.targets.cambricon.isa import ACC_C, BY_OPCODE, EXCLUSIVE, hidden
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.state import Array


def take_apart(words: Array, kernels: Array | None = None) -> Array:
    """The columns of a program; ``kernels`` numbers each word's kernel (all 0 by default).

    Raises TilewrightError (``isa-word``) at the first word that is no instruction.
    """
    words = np.ascontiguousarray(words, np.uint64)
    table = np.zeros((words.size, at.COLUMNS), np.int64)
    opcode = (words >> np.uint64(ACC_C.opcode_low)).astype(np.int64)
    table[:, at.OPCODE] = opcode
    table[:, at.BITS] = words & np.uint64((1 << 32) - 1)
    table[:, at.KERNEL] = 0 if kernels is None else kernels
    wrong = np.ones(words.size, np.bool_)
    for number in np.unique(opcode).tolist():
        instruction = BY_OPCODE.get(number)
        if instruction is None:
            continue
        rows = np.flatnonzero(opcode == number)
        units = (words[rows] & np.uint64((1 << ACC_C.opcode_low) - 1))[:, None]
        columns = instruction.format.unpack(units)
        wrong[rows] = instruction.format.invalid(units) | hidden(instruction, columns)
        for index, name in enumerate(instruction.registers):
            table[rows, at.REGISTERS + index] = columns[name]
        table[rows, at.FIELDS] = len(instruction.registers)
        if instruction.numbered:
            table[rows, at.IMMEDIATE] = columns[NUMBER.name]
        if instruction.flagged:
            table[rows, at.FLAG] = columns[IMMEDIATE_FLAG.name]
            table[rows, at.FIELDS] -= columns[IMMEDIATE_FLAG.name]
        for first, second in EXCLUSIVE:
            if first in instruction.by_name and second in instruction.by_name:
                wrong[rows] |= (columns[first] != 0) & (columns[second] != 0)
    if wrong.any():
        index = int(np.argmax(wrong))
        word = int(words[index])
        instruction = BY_OPCODE.get(word >> ACC_C.opcode_low)
        reason = (
            f"is no valid {instruction.mnemonic}"
            if instruction is not None
            else "has no known opcode"
        )
        raise refuse("isa-word", f"{word:#018x} {reason}", f"word {index}")
    return table
