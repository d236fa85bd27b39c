"""Statements to words and back, their text, and refusals with lines."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.targets.cambricon.isa import Immediate, Register, encode
from tilewright.targets.cambricon.statements import (
    Label,
    Statement,
    assemble_statements,
    disassemble,
    split_mnemonic,
    statement,
    to_text,
)

R = [Register(n) for n in range(64)]

LOOP = [
    statement("SMOVE", R[1], 3),
    Statement(label="loop"),
    Statement("SSUB", (R[1], R[1], Immediate(1)), {}, label="again"),
    statement("CB", R[1], "loop"),
    statement("vav.wide.acc", R[2], R[3], R[4], R[5], remark="sum\nup"),
    statement("J", "end"),
    statement("VEXP.table=3", R[2], R[3], R[4]),
    Statement(label="end"),
]


def test_labels_become_offsets_from_the_branch() -> None:
    words = assemble_statements(LOOP)
    assert len(words) == 6
    assert words[2] == encode("CB", (R[1], Immediate(-1)), {})
    assert words[4] == encode("J", (Immediate(2),), {})


def test_text_shows_labels_modifiers_and_remarks() -> None:
    assert to_text(LOOP).splitlines() == [
        "  SMOVE $R1, #3",
        "loop:",
        "again:",
        "  SSUB $R1, $R1, #1",
        "  CB $R1, loop",
        "  VAV.wide.acc $R2, $R3, $R4, $R5  ;; sum up",
        "  J end",
        "  VEXP.table=3 $R2, $R3, $R4",
        "end:",
    ]


def test_disassembly_assembles_to_the_same_words() -> None:
    words = assemble_statements(LOOP)
    found = disassemble(words)
    assert found[2].operands == (R[1], Label("L1"))
    assert np.array_equal(assemble_statements(found), words)
    assert "CB $R1, L1" in to_text(found)


def test_words_that_are_no_instruction_are_named() -> None:
    words = assemble_statements(LOOP)
    words[3] = 0
    with pytest.raises(TilewrightError, match="word 3"):
        disassemble(words)


def test_refusals_name_every_line() -> None:
    program = [
        Statement("J", (Label("nowhere"),), line=4),
        Statement("J", (Immediate(9),), line=5),
        Statement("SMOVE", (R[1],), line=6),
        Statement("SMOVE", (R[1], R[2]), label="a", line=7),
        Statement("SMOVE", (R[1], R[2]), label="a", line=8),
        Statement("SMOVE", (R[1], R[2]), label="2b"),
    ]
    with pytest.raises(TilewrightError) as caught:
        assemble_statements(program, "x.hlal")
    found = {(p.where, p.code) for p in caught.value.problems}
    assert found == {
        ("x.hlal:4", "asm-label"),
        ("x.hlal:5", "asm-branch"),
        ("x.hlal:6", "isa-operands"),
        ("x.hlal:8", "asm-label"),
        ("x.hlal: word 5", "asm-label"),
    }


@pytest.mark.parametrize(
    "text", ["NOP", "VAV.acc=1", "VAV.shift", "VAV.shift=x", "VAV.table=1", "VAV.acc.acc", "VAV."]
)
def test_modifiers_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(TilewrightError, match="isa-"):
        split_mnemonic(text)


def test_mnemonics_are_read_in_any_case() -> None:
    assert split_mnemonic("vaV.ACC.Shift=-7") == ("VAV", {"acc": 1, "shift": -7})
