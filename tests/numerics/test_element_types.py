"""What element types are, and that the compiler asks for that, and for no format by its name."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.numerics.element_types import ELEMENTS, Element, rounded, size_of, widened

SOURCE = Path(tilewright.__file__).parent
ROOMS = (
    *("graph/passes", "compiler", "planning", "tile", "machine", "network", "memory", "simulate"),
    *("runtime", "report", "cli"),
)
"""Where a new format must need no line; frontends, targets, generators of
code and numerics are about formats."""


def compared(tree: ast.AST) -> Iterator[ast.Constant]:
    """Names of formats that a comparison or a match has."""
    for node in ast.walk(tree):
        found: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            found = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            found = [node.value]
        for part in found:
            for inner in ast.walk(part):
                if isinstance(inner, ast.Constant) and inner.value in ELEMENTS:
                    yield inner


def test_no_format_is_asked_for_by_name() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{constant.lineno}: {constant.value}"
        for room in ROOMS
        for path in sorted((SOURCE / room).rglob("*.py"))
        for constant in compared(ast.parse(path.read_text()))
        # Masks of conditions are one of the element types, but no number format.
        if constant.value != "bool"
    ]
    assert not found, "ask for properties of ELEMENTS[name]: " + ", ".join(found)


def test_the_search_finds_names() -> None:
    tree = ast.parse('if a == "fixed16" or b in ("x", "int8"): pass')
    assert [constant.value for constant in compared(tree)] == ["fixed16", "int8"]


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_are_what_their_names_say(name: str) -> None:
    element = ELEMENTS[name]
    assert element.dtype.itemsize == element.bytes
    if element.kind == "float":
        assert name.endswith(f"float{element.bits}")
        assert element.is_short_float == (element.bits == 16)
    elif element.kind == "code":
        assert element.dtype.name == name
    else:
        assert element.dtype.kind in "iub"
    if element.accumulator is not None:
        sums = ELEMENTS[element.accumulator]
        assert (sums.kind, sums.bits) == (element.kind, 32)
        assert element.is_narrow == (element.bits < 32)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_numbers_beyond_the_largest(name: str) -> None:
    element = ELEMENTS[name]
    most = np.float32(ml_dtypes.finfo(element.dtype).max)
    x = np.array([np.finfo(np.float32).max, -3.4e38, np.inf, -np.inf, np.nan, most], np.float32)
    inf = np.inf
    plain = rounded(x, element, saturate=False).astype(np.float32)
    np.testing.assert_array_equal(plain, [inf, -inf, inf, -inf, np.nan, most])
    cut = rounded(x, element, saturate=True).astype(np.float32)
    np.testing.assert_array_equal(cut, [most, -most, inf, -inf, np.nan, most])


def test_16_bits_are_widened_and_nothing_else() -> None:
    arrays = [np.ones(3, ELEMENTS[name].dtype) for name in ELEMENTS]
    for array, wide in zip(arrays, widened(arrays), strict=True):
        short = array.dtype.name in ("float16", "bfloat16")
        assert wide.dtype == (np.float32 if short else array.dtype)


def test_a_row_of_the_table_may_have_less_than_a_byte() -> None:
    """Sizes are counted in bits and rounded up once, so that packed weights have a place."""
    nibble = Element("int4", "integer", 4, "int32")
    assert nibble.size(17) == 9 and nibble.size(16) == 8 and nibble.size(0) == 0
    assert nibble.bytes == 1 and nibble.is_integer and nibble.is_narrow
    assert nibble.dtype == np.dtype(ml_dtypes.int4)
    for name, element in ELEMENTS.items():
        assert size_of(name, 17) == 17 * element.dtype.itemsize == 17 * element.bytes


@pytest.mark.slow
def test_a_format_of_four_bits_is_one_row() -> None:
    """With the row, sizes of tensors and machines' element types take the name."""
    script = """
import importlib.util, sys, types
name = "tilewright.numerics.element_types"
text = open(importlib.util.find_spec(name).origin).read()
first = '    Element("fixed32", "fixed", 32),\\n'
assert text.count(first) == 1
sys.modules[name] = module = types.ModuleType(name)
exec(text.replace(first, first + '    Element("nibble", "integer", 4, "int32"),\\n'), vars(module))
from tilewright.machine import Machine, Memory
from tilewright.planning.domain import Operand
from tilewright.numerics.formats import Format
assert Operand("w", (17, 3), (), element="nibble").bytes == 26
assert Format("nibble", "four bits").bits == 4 and Format("nibble", "").kind == "linear"
machine = dict(name="m", clock_hz=1e9, memories=(Memory(name="dram", bytes_per_cycle=8),))
try:
    Machine(**machine, element="int5", accumulator="int32")
except ValueError as error:
    assert "'nibble'" in str(error), error
else:
    raise AssertionError("int5 is no element type")
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
