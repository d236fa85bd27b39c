"""Names become identifiers that C compilers take, and stay apart."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.graph.names import LONGEST, RESERVED, Namer, identifier, value_hint
from tilewright.ir import SSAValue

NASTY = [
    "",
    "int",
    "while",
    "uint8_t",
    "size_t",
    "NULL",
    'a"b\n*/ #include <x>',
    "0",
    "12_conv",
    "_",
    "__attribute__",
    "_Bool",
    "größe/重み",
    "a" * 500,
    "resnet/layer1.0/conv1:0",
    "\ud800",
    "%s%n",
    "??/",
]


@given(st.text())
def test_every_name_becomes_an_identifier(name: str) -> None:
    text = identifier(name)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text) and "__" not in text
    assert text not in RESERVED and len(text) <= LONGEST
    assert identifier(name) == text
    assert SSAValue.is_valid_name(value_hint(name))


@given(st.lists(st.sampled_from([*NASTY, "a", "a_2", "a b", "a.b", "a/b", "a_b_2"])))
def test_names_stay_unique(names: list[str]) -> None:
    namer = Namer()
    found = [namer.unique(name) for name in names]
    assert len(set(found)) == len(found)
    assert [namer.originals[text] for text in found] == names
    again = Namer()
    assert [again.unique(name) for name in names] == found


def test_good_names_stay_as_they_are() -> None:
    for name in ("conv1", "layer1_0_conv1_weight", "X", "relu_2"):
        assert identifier(name) == name


def test_long_names_stay_distinct() -> None:
    one, two = identifier("x" * 200 + "a"), identifier("x" * 200 + "b")
    assert one != two and len(one) == LONGEST


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_compiler_takes_them() -> None:
    namer = Namer()
    lines = [f"static int {namer.unique(name)};" for name in (*NASTY, *sorted(RESERVED))]
    includes = "".join(
        f"#include <{header}.h>\n" for header in ("stdio", "stdlib", "string", "math", "stdint")
    )
    source = includes + "\n".join(lines) + "\nint main(void) { return 0; }\n"
    run = subprocess.run(
        ["cc", "-x", "c", "-fsyntax-only", "-"], input=source, text=True, capture_output=True
    )
    assert run.returncode == 0, run.stderr
