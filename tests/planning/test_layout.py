"""Layouts: the notation, the packed array against an index-by-index oracle, composition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.planning.layout import Factor, Layout

TEXTS = [
    ("", 4),
    ("NCHW", 4),
    ("NHWC", 4),
    ("OHWI", 4),
    ("GOHWI", 5),
    ("NCHW8c", 4),
    ("NCHW16c", 4),
    ("OIHW4i8o", 4),
    ("OIHW2o4i2o", 4),
    ("MN4m2n", 2),
    ("MN4n2m", 2),
    ("NM4m2n", 2),
    ("NC", 2),
    ("O4o", 1),
    ("OI16o", 2),
    ("HWC", 3),
]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...]]:
    text, rank = draw(st.sampled_from(TEXTS))
    shape = draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank))
    return Layout.parse(text, rank), tuple(shape)


@pytest.mark.slow
@given(layouts())
@settings(max_examples=150, deadline=None)
def test_packing_puts_every_element_at_its_offset_and_zeros_elsewhere(
    case: tuple[Layout, tuple[int, ...]],
) -> None:
    layout, shape = case
    array = np.arange(1, 1 + np.prod(shape), dtype=np.int64).reshape(shape)
    physical = layout.pack(array)
    assert physical.shape == layout.physical_shape(shape)
    assert physical.flags["C_CONTIGUOUS"]
    expected = np.zeros(layout.size(shape), np.int64)
    for index in itertools.product(*map(range, shape)):
        expected[layout.offset(index, shape)] = array[index]
    assert np.array_equal(physical.ravel(), expected)
    assert np.array_equal(layout.unpack(physical, shape), array)


@pytest.mark.parametrize(("text", "rank"), TEXTS[1:])
def test_printing_and_parsing_agree(text: str, rank: int) -> None:
    layout = Layout.parse(text, rank)
    if set("GOI") & set(text.upper()):
        assert len(str(layout)) == len(text)  # weights print in the letters of images
    else:
        assert Layout.parse(str(layout), rank) == layout


def test_plain_text_is_row_major() -> None:
    assert Layout.parse("", 4) == Layout.parse("NCHW", 4) == Layout.parse("OIHW", 4)
    assert Layout.parse("", 4).row_major
    assert not Layout.parse("NHWC", 4).row_major
    assert Layout.parse("NHWC", 4) == Layout.parse("OHWI", 4)


def test_physical_shapes_strides_and_offsets() -> None:
    layout = Layout.parse("NCHW16c", 4)
    assert layout.physical_shape((2, 20, 3, 5)) == (2, 2, 3, 5, 16)
    assert layout.strides((2, 20, 3, 5)) == (480, 240, 80, 16, 1)
    assert layout.physical_index((1, 17, 2, 4)) == (1, 1, 2, 4, 1)
    assert layout.offset((0, 17, 0, 1), (2, 20, 3, 5)) == 257
    assert layout.offset((0, 17, 0, 1), (2, 20, 3, 5), (1, 1000, 0, 10, 3)) == 1013


def test_a_number_keeps_its_rank() -> None:
    layout = Layout.parse("", 0)
    number = np.array(3.5)
    assert layout.pack(number).shape == layout.unpack(number, ()).shape == ()


def test_fractal_forms_of_a_matrix() -> None:
    matrix = np.arange(16).reshape(4, 4)
    row_blocks_of_rows = Layout.parse("MN2m2n", 2).pack(matrix).ravel()
    row_blocks_of_columns = Layout.parse("MN2n2m", 2).pack(matrix).ravel()
    assert row_blocks_of_rows[:8].tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert row_blocks_of_columns[:8].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


@pytest.mark.parametrize(
    ("first", "rank", "second"),
    [
        ("NHWC", 4, (0, 3, 1, 2)),
        ("NCHW8c", 4, (4, 3, 2, 1, 0)),
        ("OIHW4i8o", 4, (3, 2, 5, 4, 1, 0)),
    ],
)
def test_composition_is_packing_twice(first: str, rank: int, second: tuple[int, ...]) -> None:
    inner = Layout.parse(first, rank)
    outer = Layout(len(second), tuple(Factor(axis) for axis in second))
    array = np.random.default_rng(1).integers(0, 99, (3, 9, 5, 6)[:rank])
    both = inner.then(outer)
    assert np.array_equal(both.pack(array), outer.pack(inner.pack(array)))
    assert both.physical_shape(array.shape) == both.pack(array).shape


def test_composition_cuts_blocks_further() -> None:
    inner = Layout.parse("NCHW16c", 4)
    cut = tuple(Factor(axis) for axis in range(4))
    outer = Layout(5, (*cut, Factor(4, 4), Factor(4, 1, 4)))
    array = np.random.default_rng(2).integers(0, 99, (2, 33, 3, 2))
    both = inner.then(outer)
    assert np.array_equal(both.pack(array), outer.pack(inner.pack(array)))
    with pytest.raises(TilewrightError, match="not cut evenly"):
        inner.then(Layout(5, (*cut, Factor(4, 5), Factor(4, 1, 5))))


@pytest.mark.parametrize(
    "text",
    ["NCHWc", "NCHW0c", "nchw", "NCHH", "NCHW16k", "16cNCHW", "N CHW", "NCHW16c" * 20, "NCH"],
)
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(TilewrightError, match="layout-"):
        Layout.parse(text, 4)


def test_wrong_ranks_and_incomplete_factors_are_refused() -> None:
    with pytest.raises(TilewrightError, match="layout-rank"):
        Layout.parse("NHWC", 4).pack(np.zeros((2, 3)))
    with pytest.raises(TilewrightError, match="layout-shape"):
        Layout.parse("NHWC", 4).unpack(np.zeros((1, 2, 3, 4)), (1, 2, 3, 4))
    for factors in [(Factor(0),), (Factor(0), Factor(1, 1, 4)), (Factor(0), Factor(1, 2))]:
        with pytest.raises(TilewrightError, match="exactly once"):
            Layout(2, factors)
