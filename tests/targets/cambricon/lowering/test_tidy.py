"""Tidied statements compute the same, in fewer instructions."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.tidy import (
    _depths,  # pyright: ignore[reportPrivateUsage]
    tidied,
)
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import run
from tilewright.targets.cambricon.statements import (
    Statement,
    assemble_statements,
    statement,
    to_text,
)

REGISTERS = 6
"""Registers of random programs: few, so that their uses cross."""

PLACES = 64
"""Words of main memory that random programs write."""


def register(number: int) -> Register:
    return Register(number)


class Program:
    """Random statements: sums, loops, branches forward, numbers stored in main memory."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.statements: list[Statement] = []
        self.labels = 0
        self.counters = REGISTERS
        for number in range(REGISTERS):
            self.add("SMOVE", register(number), int(self.random.integers(-9, 9)))
        self.block(3)
        for number in range(REGISTERS):
            self.store(number)

    def add(self, text: str, *operands: Register | int | str) -> None:
        self.statements.append(statement(text, *operands))

    def place(self, label: str) -> None:
        self.statements.append(Statement(label=label))

    def any(self) -> Register:
        return register(int(self.random.integers(REGISTERS)))

    def store(self, number: int | None = None) -> None:
        at = 4 * int(self.random.integers(PLACES))
        value = self.any() if number is None else register(number)
        self.add("SMOVE", register(63), 0)
        self.add("SSTORE", value, register(63), at if number is None else 4 * (PLACES + number))

    def sum(self) -> None:
        text = str(self.random.choice(["SADD", "SADD", "SSUB", "SMUL", "SGT", "SMOVE", "SE"]))
        number = int(self.random.integers(-3, 4))
        second = number if self.random.random() < 0.6 else self.any()
        if text == "SMOVE":
            self.add(text, self.any(), second)
        else:
            self.add(text, self.any(), self.any(), second)

    def block(self, depth: int) -> None:
        for _ in range(int(self.random.integers(4, 9))):
            kind = self.random.random()
            if kind < 0.7 or not depth:
                self.sum()
            elif kind < 0.8:
                self.store()
            else:
                self.labels += 1
                label = f"label{self.labels}"
                if kind < 0.9:
                    self.add("CB", self.any(), label)
                    self.block(depth - 1)
                    self.place(label)
                else:
                    self.counters += 1
                    left = register(self.counters)
                    self.add("SMOVE", left, int(self.random.integers(1, 4)))
                    self.place(label)
                    self.block(depth - 1)
                    self.add("SSUB", left, left, 1)
                    self.add("CB", left, label)


def stored(statements: list[Statement]) -> tuple[bytes, int]:
    """What a program leaves in main memory, and how many instructions it executes."""
    main = np.zeros(4 * (PLACES + REGISTERS), np.uint8)
    result = run(assemble_statements(statements), MACHINE, main)
    return main.tobytes(), result.instructions


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_store_the_same_numbers(seed: int) -> None:
    program = Program(seed).statements
    if len(program) > 400:
        program = Program(seed + 1000).statements
    expected, before = stored(program)
    found, after = stored(tidied(program, {}).statements)
    assert found == expected
    # A number that is filled early may be one that is never asked for.
    assert after <= before + REGISTERS


def test_numbers_leave_loops_and_copies_are_not_made() -> None:
    one, two, three, left = (register(number) for number in range(4))
    program = [
        statement("SMOVE", left, 3),
        Statement(label="loop"),
        statement("SMOVE", one, 64),
        statement("SADD", two, one, 64),
        statement("SADD", three, left, 1),
        statement("SADD", three, three, -1),
        statement("VMOVE", two, one, three),
        statement("SSUB", left, left, 1),
        statement("CB", left, "loop"),
    ]
    assert to_text(tidied(program, {}).statements).splitlines() == [
        "  SMOVE $R3, #64",
        "  SMOVE $R4, #128",
        "  SMOVE $R0, #3",
        "loop:",
        "  VMOVE $R4, $R3, $R0",
        "  SSUB $R0, $R0, #1",
        "  CB $R0, loop",
    ]


def test_a_sum_goes_on_in_the_register_where_it_began() -> None:
    total, count, at = (register(number) for number in range(3))
    program = [
        statement("SMOVE", count, 4),
        statement("SMOVE", at, 0),
        statement("RV.shift=20", at, count),
        statement("SMOVE", total, 11),
        statement("VDOT.acc", total, count, at, at),
        statement("SMOVE", register(5), total),
        statement("SMOVE", register(6), 0),
        statement("SSTORE", register(5), register(6), 0),
    ]
    expected, _ = stored(program)
    assert stored(tidied(program, {}).statements)[0] == expected
    assert expected[0] == 11


def test_a_place_for_a_load_keeps_its_registers() -> None:
    """What the load overwrites holds no value across it, and it gets no number either."""
    slot = Statement(remark="room for a load")
    one, two, three, left = (register(number) for number in range(4))
    program = [
        statement("SMOVE", left, 2),
        Statement(label="loop"),
        statement("SMOVE", one, 8),
        statement("VMOVE", one, one, one),
        statement("SMUL", two, left, left),
        slot,
        statement("SADD", three, two, left),
        statement("SSTORE", three, two, 0),
        statement("SSUB", left, left, 1),
        statement("CB", left, "loop"),
    ]
    found = tidied(program, {id(slot): (register(8), register(9))})
    lines = found.statements
    at = next(n for n, line in enumerate(lines) if line is slot)
    lost = found.clobbers[id(slot)]
    assert len(set(lost)) == 2
    total, stored = (line for line in lines[at:] if line.mnemonic in ("SADD", "SSTORE"))
    assert not {*total.operands[1:], stored.operands[1]} & set(lost)
    # The number 8, which is filled early, lies in no register that the load overwrites.
    assert str(lines[0].operands[1]) == "#8"
    assert lines[0].operands[0] not in lost


def test_what_stands_apart_is_run_in_the_loop_that_it_leads_back_to() -> None:
    """Its numbers get registers before those of the loop around; jumps back are no loops."""
    r = register
    statements = [
        statement("SMOVE", r(0), 9),
        Statement(label="tile"),
        statement("SMOVE", r(1), 5),  # 2: once in each tile
        statement("SMOVE", r(2), 7),
        Statement(label="pixel"),
        statement("CB", r(1), "apart"),  # 5
        Statement(label="back"),
        statement("SSUB", r(2), r(2), 1),
        statement("CB", r(2), "pixel"),
        statement("SSUB", r(0), r(0), 1),
        statement("CB", r(0), "tile"),
        statement("J", "end"),
        Statement(label="apart"),
        statement("SMOVE", r(3), 3),  # 13
        statement("J", "back"),
        Statement(label="other"),
        statement("J", "tile"),
        Statement(label="end"),
    ]
    depths = _depths(statements)
    assert depths[0] < depths[2] < depths[5] == depths[13]
