"""Scalar instructions, branches and main memory against Python."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from tests.targets.cambricon.simulate.running import R

from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import run
from tilewright.targets.cambricon.statements import Statement, assemble_statements, statement


def wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def expected(name: str, a: int, b: int, shift: int) -> int:
    if name == "SADD":
        return wrap(a + b)
    if name == "SSUB":
        return wrap(a - b)
    if name == "SMUL":
        return wrap(a * b + (1 << shift >> 1) >> shift)
    if name == "SDIV":
        quotient = abs(a << shift) // abs(b)
        return wrap(-quotient if (a < 0) != (b < 0) else quotient)
    return {"SGT": int(a > b), "SE": int(a == b), "SAND": a & b}[name]


@pytest.mark.parametrize("name", ["SADD", "SSUB", "SMUL", "SDIV", "SGT", "SE", "SAND"])
def test_scalar_calculations(name: str) -> None:
    rng = random.Random(name)
    for trial in range(60):
        size = 31 if trial % 2 else 4
        a, b = (rng.randint(-(1 << size), (1 << size) - 1) for _ in range(2))
        if name == "SDIV" and b == 0:
            continue
        shift = rng.randrange(32) if name in ("SMUL", "SDIV") else 0
        text = f"{name}.shift={shift}" if shift else name
        program = [
            statement("SMOVE", R[1], a),
            statement("SMOVE", R[2], b),
            statement(text, R[3], R[1], R[2]),
            statement(text, R[4], R[1], b),
        ]
        found = run(assemble_statements(program), MACHINE, np.zeros(8, np.uint8)).registers
        assert found[3] == found[4] == expected(name, a, b, shift), (a, b, shift)


def test_scalar_exponential_and_logarithm_have_16_fraction_bits() -> None:
    values = [0, 1, -1, 65536, -65536, 3 * 65536, 10 * 65536, 11 * 65536, 2**31 - 1, -(2**31), 7777]
    program = []
    for index, value in enumerate(values):
        program += [
            statement("SMOVE", R[0], value),
            statement("SEXP", R[1 + index], R[0]),
            statement("SLOG", R[21 + index], R[0]),
        ]
    found = run(assemble_statements(program), MACHINE, np.zeros(8, np.uint8)).registers
    for index, value in enumerate(values):
        power = math.exp(min(value / 65536, 30.0)) * 65536
        assert found[1 + index] == min(math.floor(power + 0.5), 2**31 - 1)
        log = math.floor(math.log(value / 65536) * 65536 + 0.5) if value > 0 else -(2**31)
        assert found[21 + index] == log


def test_branches_are_relative_and_taken_when_positive() -> None:
    program = [
        statement("SMOVE", R[1], 5),
        Statement(label="loop"),
        statement("SADD", R[2], R[2], R[1]),
        statement("SSUB", R[1], R[1], 1),
        statement("CB", R[1], "loop"),
        statement("CB", R[1], "wrong"),
        statement("SMOVE", R[3], 2),
        statement("J", R[3]),
        Statement(label="wrong"),
        statement("SMOVE", R[2], -1),
        statement("SMOVE", R[4], R[2]),
    ]
    result = run(assemble_statements(program), MACHINE, np.zeros(8, np.uint8))
    assert result.registers[:5].tolist() == [0, 0, 15, 2, 15]
    assert result.counts == {"SMOVE": 3, "SADD": 5, "SSUB": 5, "CB": 6, "J": 1}


def test_scalars_of_main_memory_are_little_endian() -> None:
    main = np.zeros(64, np.uint8)
    main[8:12] = np.array([-123456789], "<i4").view(np.uint8)
    program = [
        statement("SMOVE", R[1], 12),
        statement("SLOAD", R[2], R[1], -4),
        statement("SSTORE", R[2], R[1], 20),
    ]
    result = run(assemble_statements(program), MACHINE, main)
    assert result.registers[2] == -123456789
    assert np.array_equal(main[32:36], main[8:12])
    assert result.bytes["scalar"] == 8
