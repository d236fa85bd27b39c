"""Small programs around one instruction, and how elements are cut out of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.machine import Machine
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import Result, run
from tilewright.targets.cambricon.statements import Statement, assemble_statements, statement

Array = NDArray[Any]
R = [Register(number) for number in range(64)]
BASE, SIZE = R[62], R[63]

TYPES = {2: np.int16, 4: np.int32, 8: np.int64}


def number(register: Register, value: int) -> Statement:
    return statement("SMOVE", register, value)


def filled(vsm: Array, msm: Array) -> tuple[list[Statement], Array]:
    """Statements that fill both scratchpads, and main memory with what they load."""
    main = np.concatenate([vsm, msm])
    program = [
        number(BASE, 0),
        number(SIZE, len(vsm) // 2),
        statement("VLOAD", BASE, SIZE, BASE, 0),
        number(SIZE, len(msm) // 2),
        statement("MLOAD", BASE, SIZE, BASE, len(vsm)),
    ]
    return program, main


def execute(
    text: str,
    operands: Sequence[int],
    vsm: Array,
    msm: Array,
    *,
    before: Sequence[Statement] = (),
    machine: Machine = MACHINE,
    extra: Mapping[str, Any] | None = None,
) -> Result:
    """Run one instruction whose registers ($R1, $R2, ...) hold ``operands``, on filled memories."""
    program, main = filled(vsm, msm)
    program += before
    registers = [R[index] for index in range(1, len(operands) + 1)]
    program += [
        number(register, value) for register, value in zip(registers, operands, strict=True)
    ]
    program.append(statement(text, *registers))
    return run(assemble_statements(program), machine, main, **(extra or {}))


def elements(memory: Array, address: int, count: int, width: int) -> Array:
    """Elements as int64."""
    found = memory[address : address + count * width].view(TYPES[width])
    return found.astype(np.int64)


def placed(memory: Array, address: int, values: Array, width: int) -> Array:
    """A copy of a memory with elements written: 16 bits saturate, others wrap."""
    copy = memory.copy()
    if width == 2:
        values = np.clip(values, -32768, 32767)
    with np.errstate(over="ignore"):
        data = values.astype(np.int64).astype(TYPES[width])
    copy[address : address + values.size * width] = data.view(np.uint8)
    return copy
