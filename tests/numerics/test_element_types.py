"""What element types are, and that the compiler asks for that, and for no format by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.numerics.element_types import ELEMENTS, rounded, widened

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
