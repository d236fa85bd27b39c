"""From text to words: expansion, hygiene, addresses, relocation, barriers, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.targets.cambricon.hlal.assemble import Program, assemble
from tilewright.targets.cambricon.hlal.builtin import library_texts
from tilewright.targets.cambricon.hlal.rules import Sizes
from tilewright.targets.cambricon.statements import disassemble, to_text

SIZES = Sizes(vsm_bytes=64 << 10, msm_bytes=768 << 10, lanes=32)


def program(text: str, base: int = 0) -> Program:
    return assemble(text, "p.hlal", SIZES, base=base)


def lines(text: str) -> list[str]:
    """The instructions that a text becomes."""
    return [line.strip() for line in to_text(program(text).statements).splitlines()]


def problems(text: str) -> list[tuple[str, str]]:
    """Codes and places of what is refused."""
    with pytest.raises(TilewrightError) as caught:
        program(text)
    return [(problem.code, problem.where) for problem in caught.value.problems]


LOOP = """
.code
  @count x, #3
  @count x, #4
def_block @count(@tensor t, #times) {
  REG $i, $size, $at
  VOA fix16 buffer[t.seg_size_c]
  smove $i, #times
  smove $size, #buffer.size
AGAIN:
  @iom t, $at, $size, buffer
  ssub $i, #1
  CB AGAIN, $i
}
@IO-Macro iom t, at, size, place
  REG $place
  smove $place, place
  smove at, t + t.seg_step_c
  vload $place, size, at, #0
mend
.static_ro
  @tensor first, 1, 1, 1, 7, 1, 1, 1, 7
  @tensor x, 1, 1, 1, 64, 1, 1, 1, 32
"""


def test_blocks_and_macros_are_put_in_with_their_own_labels_and_registers() -> None:
    found = lines(LOOP)
    assert found[:9] == [
        "SMOVE $R63, #3",
        "SMOVE $R62, #32",
        "AGAIN:",
        "SMOVE $R60, #0",
        "SMOVE $R61, #128",
        "VLOAD $R60, $R62, $R61, #0",
        "SSUB $R63, $R63, #1",
        "CB $R63, AGAIN",
        "SMOVE $R63, #4",
    ]
    labels = [line for line in found if line.endswith(":")]
    assert len(set(labels)) == len(labels) == 2


def test_registers_that_the_text_names_are_left_alone() -> None:
    found = lines(".code\n smove $R63, #1\n REG $a, $b\n smove $a, #2\n smove $b, $R62\n")
    assert found == ["SMOVE $R63, #1", "SMOVE $R61, #2", "SMOVE $R60, $R62"]


def test_words_are_relocated() -> None:
    here, there = program(LOOP), program(LOOP, base=4096)
    assert len(here.relocations) == 2
    assert not np.array_equal(here.words, there.words)
    np.testing.assert_array_equal(here.at(4096), there.words)
    np.testing.assert_array_equal(there.at(0), here.words)


def test_a_barrier_repeats_the_instruction_before_it_without_executing_it() -> None:
    found = lines(".code\n@barrier\n mmv.acc.wide $R1,$R2,$R3,$R4,$R5\n sadd $R1,#1\n@barrier\n")
    assert found == [
        "VMOVE.barrier $R0, $R0, $R0",
        "MMV.wide.acc $R1, $R2, $R3, $R4, $R5",
        "SADD $R1, $R1, #1",
        "MMV.wide.acc.barrier $R1, $R2, $R3, $R4, $R5",
    ]


def test_conditions_constants_and_functions() -> None:
    text = """
    .code
      @fix16 rate 0.5
      @let twice = 2 * rate + min(3, ceil_div(7, 2)) - 7 % 4
      @if twice == 256
        smove $R1, #twice
      @else
        smove $R1, #fixed(0.25, 8) + log2(9)
        @unknown
      @end
    """
    assert lines(text) == ["SMOVE $R1, #256"]


def test_places_lead_from_the_macro_to_the_programs_line() -> None:
    found = program(LOOP)
    assert found.where(4) == "p.hlal:19:3 from p.hlal:11:3 from p.hlal:3:3"
    assert found.line(4) == 3


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ("vlod $R1", "hlal-name", "p.hlal:1:1"),
        ("smove $R64, #1", "hlal-name", "p.hlal:1:7"),
        ("smove $r, #1", "hlal-name", "p.hlal:1:7"),
        ("smove $R1, #x", "hlal-name", "p.hlal:1:13"),
        ("smove $R1, #4294967296", "hlal-value", "p.hlal:1:13"),
        ("smove $R1, #1/0", "hlal-value", "p.hlal:1:13"),
        ("vload $R1, $R2, $R3", "isa-operands", "p.hlal:1:1"),
        ("vload $R1, #5, $R3, #0", "isa-operands", "p.hlal:1:1"),
        ("mmv.foo $R1,$R1,$R1,$R1,$R1", "isa-modifier", "p.hlal:1:1"),
        ("mmv.shift $R1,$R1,$R1,$R1,$R1", "isa-modifier", "p.hlal:1:1"),
        ("j nowhere", "hlal-name", "p.hlal:1:3"),
        ("l: smove $R1, #1\nl: smove $R1, #1", "hlal-name", "p.hlal:2:1"),
        ("@nothing", "hlal-name", "p.hlal:1:1"),
        ("VOA fix16 a[40000]", "hlal-memory", "p.hlal:1:11"),
        ("VOA fix8 a[4]", "hlal-value", "p.hlal:1:10"),
        ("@assert 1 > 2, \"no\"", "hlal-block", "p.hlal:1:1"),
        (".static_ro\nsmove $R1, #1", "hlal-section", "p.hlal:2:1"),
        ("@tensor x, 1,1,1,1, 1,1,1,1", "hlal-section", "p.hlal:1:9"),
        (".static_ro\n@tensor x, 1,2,3", "hlal-data", "p.hlal:2:9"),
        (".static_ro\n@tensor x, 1,1,1,4, 1,1,1,5", "hlal-data", "p.hlal:2:27"),
        (".static_ro\n@tensor x, 0,1,1,4, 1,1,1,4", "hlal-data", "p.hlal:2:12"),
        (".static_ro\n@tensor x, 99999,99999,1,1, 1,1,1,1", "hlal-size", "p.hlal:2:9"),
        (".static_ro\n@fix16 x 40000", "hlal-value", "p.hlal:2:10"),
        ("@table t = sine, 8, 8", "hlal-value", "p.hlal:1:8"),
        ("@C-Macro m\nvload $R1,$R1,$R1,#0\nmend\n@m", "hlal-macro", "p.hlal:2:1 from p.hlal:4:1"),
        ("@IO-Macro m\nvav $R1,$R1,$R1,$R1\nmend\n@m", "hlal-macro", "p.hlal:2:1 from p.hlal:4:1"),
        ("@C-Macro m a\nmend\n@m", "hlal-argument", "p.hlal:3:1"),
        ("def_block @b(@tensor x) {\n}\n@b #3", "hlal-argument", "p.hlal:3:5"),
        ("def_block @b() {\n@b\n}\n@b", "hlal-size", None),
        ("@C-Macro m\nmend\n@C-Macro m\nmend", "hlal-name", "p.hlal:3:10"),
        ("REG " + ", ".join(f"$a{i}" for i in range(65)), "hlal-size", "p.hlal:1:379"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_line_and_column(
    text: str, code: str, where: str | None
) -> None:
    found = problems(text)
    assert found[0][0] == code
    if where is not None:
        assert found[0][1] == where


def test_problems_are_listed_together() -> None:
    found = problems(".code\nvlod $R1\nsmove $R1, #x\n@nothing\n")
    assert [where for _, where in found] == ["p.hlal:2:1", "p.hlal:3:13", "p.hlal:4:1"]


@pytest.mark.slow
def test_calls_that_multiply_are_bounded() -> None:
    blocks = [f"def_block @b{n}() {{\n@b{n + 1}\n@b{n + 1}\n}}" for n in range(40)]
    text = "\n".join([*blocks, "def_block @b40() {\n}", "@b0"])
    assert problems(text)[0][0] == "hlal-size"


@st.composite
def random_lines(draw: st.DrawFn) -> str:
    words = st.sampled_from(
        ["smove", "$R1", "$R99", "#4", ",", "\n", ";", ";;", "@tensor", "x", "1", "{", "}", "(",
         ")", "def_block", "@b", "mend", "@C-Macro", ".code", ".static_ro", "@if", "@else", "@end",
         "MMV.acc", "-", "*", "@barrier", "CB", "l", ":", "l:", "@block_fw_fc", "x.seg_n_c", "=",
         "VOA", "fix16", "[", "]", "@let", "NHWC", "Q8", "\"", "é", "\t", "0x", "."]
    )  # fmt: skip
    return " ".join(draw(st.lists(words, max_size=30)))


@settings(max_examples=150, deadline=None)
@given(st.one_of(random_lines(), st.text(max_size=60)))
def test_random_text_is_assembled_or_refused(text: str) -> None:
    try:
        program(text)
    except TilewrightError as error:
        assert error.problems


def test_words_disassemble_to_text_that_assembles_to_the_same_words() -> None:
    words = program(LOOP).words
    text = to_text(disassemble(words))
    np.testing.assert_array_equal(program(text).words, words)


def test_the_library_is_one_text_a_topic() -> None:
    assert "fc.hlal" in library_texts()
