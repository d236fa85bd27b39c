"""What is told of a refusal."""

import json

from tests.cli.test_commands import LENET, refused
from tilewright.errors import LONGEST_TEXT, LONGEST_WORD, Problem, shortened


def test_short_texts_stay() -> None:
    text = "two  words,\n" + "w" * LONGEST_WORD
    assert shortened(text) == text
    assert Problem("code", text, text, text).help == text


def test_what_is_long_loses_its_middle() -> None:
    word = shortened("begin" + "x" * 10_000 + "end")
    assert word.startswith("beginx") and word.endswith("xend") and len(word) == LONGEST_WORD
    words = shortened("a word " * 10_000)
    assert words.startswith("a word a ") and words.endswith(" word ")
    assert len(words) == LONGEST_TEXT


def test_inputs_are_not_repeated_whole() -> None:
    name = "x" * 10_000
    for arguments in (
        ("compile", LENET, "-t", name),
        ("compile", LENET, "-t", "cambricon-x", "--set", f"{name}=1"),
        ("compile", LENET, "--shape", f"{name}=1x2"),
        ("run", LENET, "--input", f"{name}=x.npy"),
    ):
        assert len(json.dumps(refused(*arguments))) < 3_000, arguments[:3]
