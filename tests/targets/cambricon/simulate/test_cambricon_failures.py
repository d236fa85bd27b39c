"""Programs that cannot go on: the code, the word or line, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.simulate.running import R, number

from tilewright.errors import Problem, TilewrightError
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import run
from tilewright.targets.cambricon.statements import Statement, assemble_statements, statement

LOAD = statement("VLOAD", R[0], R[1], R[0], 0)


def refused(program: list[Statement], **options: object) -> Problem:
    main = np.zeros(1024, np.uint8)
    with pytest.raises(TilewrightError) as caught:
        run(assemble_statements(program), MACHINE, main, **options)  # pyright: ignore
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("program", "code", "texts"),
    [
        (
            [
                number(R[1], 64),
                number(R[2], 64 * 1024 - 126),
                statement("VLOAD", R[2], R[1], R[0], 0),
            ],
            "program-bounds",
            ["128 bytes at 65410 of VSM", "65536"],
        ),
        (
            [number(R[1], 513), statement("MLOAD", R[0], R[1], R[0], 0)],
            "program-bounds",
            ["1026 bytes at 0 of main memory", "1024"],
        ),
        (
            [number(R[1], 2**31 - 1), statement("MMV", R[0], R[1], R[0], R[0], R[0])],
            "program-bounds",
            ["of VSM"],
        ),
        (
            [number(R[1], 64), number(R[2], -2), statement("RV", R[2], R[1])],
            "program-bounds",
            ["at -2 of VSM"],
        ),
        (
            [number(R[1], 8), LOAD, number(R[2], 9), statement("VMOVE", R[0], R[2], R[0])],
            "program-uninitialised",
            ["byte 16 of VSM"],
        ),
        (
            [number(R[1], 8), LOAD, statement("MMV", R[0], R[1], R[0], R[0], R[1])],
            "program-uninitialised",
            ["byte 0 of MSM"],
        ),
        (
            [number(R[1], 8), number(R[2], 64), LOAD, statement("VMOVE.acc", R[2], R[1], R[0])],
            "program-uninitialised",
            ["byte 64 of VSM"],
        ),
        (
            [number(R[1], 8), number(R[2], 66), statement("RV.wide", R[2], R[1])],
            "program-alignment",
            ["address 66 of VSM"],
        ),
        ([number(R[1], -1), statement("RV", R[0], R[1])], "program-size", ["negative"]),
        ([number(R[1], -5), statement("J", R[1])], "program-branch", ["word -4", "of 2"]),
        ([statement("SDIV", R[1], R[1], R[0])], "program-division", []),
        (
            [number(R[1], 8), LOAD, statement("VEXP.table=3", R[0], R[1], R[0])],
            "program-table",
            ["table 3", "514"],
        ),
        (
            [number(R[1], 513), statement("VLOAD.table=2", R[0], R[1], R[0], 0)],
            "program-table",
            ["table 2", "1026"],
        ),
        ([statement("SLOAD", R[1], R[0], 1022)], "program-bounds", ["4 bytes at 1022"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(program: list[Statement], code: str, texts: list[str]) -> None:
    problem = refused(program)
    assert problem.code == code
    assert problem.where.startswith(f"word {len(program) - 1} (")
    for text in texts:
        assert text in problem.reason


def test_the_callers_name_of_a_word_stands_in_the_message() -> None:
    def label(word: int) -> str:
        return f"x.hlal:{word + 10}"

    problem = refused([statement("SDIV", R[1], R[1], R[0])], label=label)
    assert problem.where == "x.hlal:10 (SDIV $R1, $R1, $R0)"


def test_an_endless_loop_is_named_by_its_first_and_last_word() -> None:
    program = [
        number(R[1], 1),
        Statement(label="loop"),
        number(R[2], 1),
        statement("SADD", R[1], R[1], R[2]),
        statement("CB", R[2], "loop"),
    ]
    problem = refused(program, limit=1000)
    assert problem.code == "program-endless"
    assert "1000 instructions" in problem.reason
    assert problem.where == "word 1"
    assert "word 3" in problem.reason


def test_a_program_that_ends_at_the_limit_is_not_endless() -> None:
    words = assemble_statements([number(R[1], 1)] * 5)
    assert run(words, MACHINE, np.zeros(8, np.uint8), limit=5).instructions == 5
    with pytest.raises(TilewrightError, match="program-endless"):
        run(words, MACHINE, np.zeros(8, np.uint8), limit=4)


@pytest.mark.parametrize("word", [0, 0xFF << 56, 0x30 << 56 | 1 << 31, 0x30 << 56 | 9])
def test_words_that_are_no_instructions_are_refused_before_the_run(word: int) -> None:
    words = np.array([0x18 << 56 | 1, word], np.uint64)
    with pytest.raises(TilewrightError, match=r"\[isa-word\] word 1:"):
        run(words, MACHINE, np.zeros(8, np.uint8))


def test_an_empty_program_takes_no_time() -> None:
    result = run(np.zeros(0, np.uint64), MACHINE, np.zeros(0, np.uint8))
    assert (result.cycles, result.instructions) == (0, 0)
