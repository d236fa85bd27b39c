"""The grammar: what is HLAL, and where it is said that something is not."""

from __future__ import annotations

import pytest

from tilewright.errors import TilewrightError
from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.parse import parse


def places(text: str) -> list[str]:
    """Where the problems of a text are."""
    with pytest.raises(TilewrightError) as caught:
        parse(text, "p.hlal")
    assert {problem.code for problem in caught.value.problems} == {"hlal-syntax"}
    return [problem.where for problem in caught.value.problems]


def test_statements_end_with_lines_or_semicolons_and_lists_go_on_after_commas() -> None:
    nodes = parse(".code\nsmove $R1, #1; smove $R2,\n  ;; the second\n  #0x10 ;; a remark\n")
    assert [type(node) for node in nodes] == [syntax.Section, syntax.Atomic, syntax.Atomic]
    second = nodes[2]
    assert isinstance(second, syntax.Atomic) and isinstance(second.operands[1], syntax.Number)
    assert second.operands[1].value == 16
    assert (second.at.line, second.at.column, second.at.text) == (2, 16, "smove")


def test_a_block_holds_what_the_thesis_shows() -> None:
    (block,) = parse(
        "def_block @b(@tensor x,\n   @filter w, #k, $r) {\n VOA fix16 a[x.seg_size_c * 2];\n"
        "L: CB L, $r\n @if k > 1\n  @call x, w\n @else\n  @barrier\n @end\n}"
    )
    assert isinstance(block, syntax.Block)
    assert [(p.kind, p.name) for p in block.parameters] == [
        ("tensor", "x"), ("filter", "w"), ("number", "k"), ("register", "r"),
    ]  # fmt: skip
    kinds = [type(node).__name__ for node in block.body]
    assert kinds == ["Array", "Label", "Atomic", "Condition"]


def test_macros_have_a_kind() -> None:
    one, other = parse("@C-Macro c a, b\n vav a, b, a, b\nmend\n@IO-Macro io\nmend\n")
    assert isinstance(one, syntax.Macro) and isinstance(other, syntax.Macro)
    assert (one.kind, one.parameters, len(one.body)) == ("C", ("a", "b"), 1)
    assert (other.kind, other.parameters) == ("IO", ())


def test_several_broken_lines_are_all_named() -> None:
    text = ".code\n smove $R1 $R2\n smove $R1, #1\n 50 vadd\n smove $R1, ]\n"
    assert places(text) == ["p.hlal:2:12", "p.hlal:4:2", "p.hlal:5:13"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("def_block @b() {\n smove $R1, #1\n", "p.hlal:3:1"),
        ("@C-Macro c\n vav $R1\n", "p.hlal:3:1"),
        ("smove $R1, #(1 + \n", "p.hlal:1:18"),
        ("}", "p.hlal:1:1"),
        ("\x00", "p.hlal:1:1"),
        ("<html>\n<body>", "p.hlal:1:1"),
    ],
)
def test_what_is_no_hlal_is_refused_with_its_place(text: str, where: str) -> None:
    assert places(text)[0] == where


def test_depth_and_digits_are_bounded() -> None:
    parse("smove $R1, #" + "(" * 5000 + "1" + ")" * 5000)
    for text in ("smove $R1, #" + "-" * 5000 + "1", "@if 1\n" * 200 + "@end\n" * 200):
        with pytest.raises(TilewrightError, match="deep"):
            parse(text)
    with pytest.raises(TilewrightError, match="too many digits"):
        parse("smove $R1, #" + "9" * 5000)
