"""Products, outer products, reductions, tables and random numbers against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.simulate.running import (
    BASE,
    SIZE,
    Array,
    R,
    elements,
    execute,
    number,
    placed,
)
from tests.targets.cambricon.simulate.test_cambricon_elements import (
    MACHINE,
    memories,
    modifiers_of,
    shifted,
    text_of,
)

from tilewright.numerics import fixed, tables
from tilewright.targets.cambricon.simulate import run
from tilewright.targets.cambricon.simulate.products import vector_matrix
from tilewright.targets.cambricon.statements import assemble_statements, statement


def wrapped(values: Array) -> Array:
    return values.astype(np.int32).astype(np.int64)


@pytest.mark.parametrize("name", ["MMV", "VMM", "OP"])
def test_products_of_16_bit_numbers_wrap_in_32(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for trial in range(30):
        vsm, msm = memories(rng)
        m = modifiers_of(name, rng) if trial else {}
        width = 4 if m.get("wide") else 2
        outs, ins = (int(rng.integers(0, 90)) for _ in range(2))
        vector, other = (int(rng.integers(0, 2000)) * 2 for _ in range(2))
        matrix = int(rng.integers(0, 4000)) * 2
        out = int(rng.integers(0, 1000)) * 4
        v = elements(vsm, vector, ins, 2)
        if name == "OP":
            w = elements(vsm, other, outs, 2)
            operands = [out, vector, ins, other, outs]
            memory, value = msm, np.outer(v, w).ravel()
        else:
            operands = [out, outs, matrix, vector, ins]
            w = elements(msm, matrix, outs * ins, 2)
            memory = vsm
            value = w.reshape(outs, ins) @ v if name == "MMV" else v @ w.reshape(ins, outs)
        value = shifted(wrapped(value), m.get("shift", 0))
        if m.get("acc"):
            value = value + elements(memory, out, value.size, width)
        result = execute(text_of(name, m), operands, vsm, msm, machine=MACHINE)
        found = result.msm if name == "OP" else result.vsm
        assert np.array_equal(found, placed(memory, out, value, width)), (m, operands)


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("outs", [0, 1, 15, 16, 17, 32, 63, 64, 128, 143, 256 + 64 + 32 + 16 + 5])
def test_columns_of_every_number_are_summed(outs: int, extreme: bool) -> None:
    """Sums of least numbers wrap; nothing behind the sums is written."""
    rng = np.random.default_rng(outs)
    for ins in (0, 1, 2, 3, 48, 117):
        chip = rng.integers(-32768, 32768, 7 + ins + outs * ins + 9).astype(np.int16)
        if extreme:
            chip[:] = rng.choice(np.array([-32768, -32768, -32768, 32767], np.int16), chip.size)
        vector, matrix = 7, 7 + ins
        sums = np.full(outs + 40, 77, np.int32)
        vector_matrix(chip, matrix, vector, outs, ins, sums)
        x = chip[vector:matrix].astype(np.int64)
        wanted = x @ chip[matrix : matrix + outs * ins].reshape(ins, outs).astype(np.int64)
        assert np.array_equal(sums[:outs], wrapped(wanted)), ins
        assert np.all(sums[outs:] == 77)


@pytest.mark.parametrize("name", ["VDOT", "VMAX", "VMIN"])
def test_reductions_go_to_a_register(name: str) -> None:
    rng = np.random.default_rng(ord(name[1]))
    for trial in range(20):
        vsm, msm = memories(rng)
        m = modifiers_of(name, rng) if trial else {}
        count = int(rng.integers(1, 1800))
        width0, width1 = (4 if m.get(f"wide{i}") else 2 for i in "01")
        width0 = 8 if m.get("long0") else width0
        first, second = (int(rng.integers(0, 200)) * 8 for _ in range(2))
        a, b = elements(vsm, first, count, width0), elements(vsm, second, count, width1)
        if name == "VDOT":
            with np.errstate(over="ignore"):
                value = shifted(wrapped(np.array([np.sum(a * b)])), m.get("shift", 0))[0]
                value += 77 if m.get("acc") else 0
        else:
            value = a.max() if name == "VMAX" else a.min()
        operands = [77, count, first] + ([second] if name == "VDOT" else [])
        result = execute(text_of(name, m), operands, vsm, msm, machine=MACHINE)
        assert result.registers[1] == wrapped(np.array(value)), (m, operands)


def table_program(name: str, entries: Array, operands: list[int], vsm: Array) -> Array:
    """VSM after an instruction that looks up table 5."""
    main = np.concatenate([vsm, entries.astype(np.int16).view(np.uint8)])
    registers = [R[i] for i in range(1, len(operands) + 1)]
    program = [
        number(SIZE, len(vsm) // 2),
        statement("VLOAD", BASE, SIZE, BASE, 0),
        number(SIZE, entries.size),
        statement("VLOAD.table=5", BASE, SIZE, BASE, len(vsm)),
        *(number(register, value) for register, value in zip(registers, operands, strict=True)),
        statement(name, *registers),
    ]
    return run(assemble_statements(program), MACHINE, main).vsm


@pytest.mark.parametrize("name", ["VEXP", "VLOG"])
def test_loaded_tables_are_interpolated_as_the_interpreter_does(name: str) -> None:
    rng = np.random.default_rng(4)
    vsm, _ = memories(rng)
    x = elements(vsm, 0, 1500, 2).astype(np.int16)
    for function in ("sigmoid", "tanh", "gelu"):
        entries = tables.table(function, 11, 14)
        found = table_program(f"{name}.table=5", entries, [4096, 1500, 0], vsm)
        value = tables.interpolate(entries, x)
        assert np.array_equal(found, placed(vsm, 4096, value.astype(np.int64), 2))


def test_powers_make_lrn_equal_the_interpreter() -> None:
    """The whole of LRN but its window sums, for several binary points and exponents."""
    rng = np.random.default_rng(5)
    for beta, point_in, point_out in ((0.75, 12, 13), (0.5, 3, 0), (1.0, 8, 15)):
        vsm, _ = memories(rng)
        x = rng.integers(-32768, 32768, 500).astype(np.int16)
        base = rng.integers(1, 1 << 62, 500) >> rng.integers(0, 62, 500)
        base = np.maximum(base, 1)
        vsm[:1000], vsm[1024:5024] = x.view(np.uint8), base.view(np.uint8)
        entries = np.concatenate(fixed.lrn_tables(beta))
        shift = point_in - point_out
        name = f"VDV.table=5.long1.shift={shift}"
        found = table_program(name, entries, [8192, 500, 0, 1024], vsm)
        value = fixed.lrn_scale(x, base, fixed.lrn_tables(beta), point_in, point_out)
        assert np.array_equal(found, placed(vsm, 8192, value.astype(np.int64), 2))


def test_random_numbers_are_uniform_and_follow_the_seed() -> None:
    vsm, msm = memories(np.random.default_rng(6))
    runs = [
        execute("RV", [0, 8000], vsm, msm, machine=MACHINE, extra={"seed": seed}).vsm
        for seed in (1, 1, 2)
    ]
    values = elements(runs[0], 0, 8000, 2)
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert values.min() >= 0
    assert values.max() < 1 << 15
    counts = np.histogram(values, 16, (0, 1 << 15))[0]
    assert np.abs(counts - 500).max() < 5 * 500**0.5
    narrow = execute("RV.wide.shift=7", [0, 100], vsm, msm, machine=MACHINE, extra={"seed": 1})
    assert np.array_equal(elements(narrow.vsm, 0, 100, 4), shifted(values[:100], 7))
