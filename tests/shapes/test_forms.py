"""How shapes are written: as text and in Python, and what is refused."""

import numpy as np
import pytest

from tilewright import TilewrightError
from tilewright.shapes.forms import LARGEST_SIZE, Bounds, Wish, concrete, parse_shape, parse_size


@pytest.mark.parametrize(
    ("value", "wish"),
    [
        (4, Wish(4)),
        (np.int64(4), Wish(4)),
        ("4", Wish(4)),
        (" batch ", Wish(name="batch")),
        ("1..8", Wish(bounds=Bounds(1, 8))),
        ("3..", Wish(bounds=Bounds(3))),
        ("batch:1..8", Wish(name="batch", bounds=Bounds(1, 8))),
        ("32..224:+16", Wish(bounds=Bounds(32, 224, 16))),
        ("h:0..:+4", Wish(name="h", bounds=Bounds(0, step=4))),
        ("a:b:2..", Wish(name="a:b", bounds=Bounds(2, LARGEST_SIZE))),
        (Bounds(2, 3), Wish(bounds=Bounds(2, 3))),
        ("_", Wish()),
        (None, Wish()),
    ],
)
def test_dims(value, wish):
    assert parse_size(value) == wish


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (-1, "shape-form"),
        (-1, "shape-form"),
        (True, "shape-form"),
        (2.0, "shape-form"),
        (2**31, "shape-form"),
        ("", "shape-form"),
        ("-3", "shape-form"),
        ("2.5", "shape-form"),
        ("2a", "shape-form"),
        ("-1:1..8", "shape-form"),
        ("8:+4", "shape-form"),
        ("h:+4", "shape-form"),
        ("1..8:+", "shape-form"),
        ("1..8:+0", "shape-bounds"),
        ("6..8:+4", "shape-bounds"),
        ("+2", "shape-form"),
        ("n:", "shape-form"),
        (":1..2", "shape-form"),
        ("n:4", "shape-form"),
        ("n:1..x", "shape-form"),
        ("..4", "shape-form"),
        ("n" * 1000, "shape-form"),
        ("8..1", "shape-bounds"),
        ("4..0", "shape-bounds"),
        ("1..9999999999", "shape-bounds"),
    ],
)
def test_what_is_no_dim_is_refused(value, code):
    with pytest.raises(TilewrightError) as caught:
        parse_size(value)
    assert [problem.code for problem in caught.value.problems] == [code]
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1x3x224x224", (1, 3, 224, 224)),
        ("1,3,224,224", (1, 3, 224, 224)),
        ("batchx3x224x224", ("batch", 3, 224, 224)),
        ("nx3xhxw", ("n", 3, "hxw")),
        ("n,3,h,w", ("n", 3, "h", "w")),
        ("batch:1..8,sequence:1..512", ("batch:1..8", "sequence:1..512")),
        ("1..8x3", ("1..8", 3)),
        ("max", ("max",)),
        ("7", (7,)),
    ],
)
def test_shapes_as_text_and_in_python(text, same):
    assert parse_shape(text) == parse_shape(same) == parse_shape(list(same))


@pytest.mark.parametrize(
    "value", ["", "1,,2", "1x", None, Bounds(), 2.5, (1, 2.5), (1, None, "2b")]
)
def test_what_is_no_shape_is_refused(value):
    with pytest.raises(TilewrightError) as caught:
        parse_shape(value)
    assert caught.value.problems[0].code == "shape-form"


def test_bounds_hold_both_ends():
    bounds = Bounds(2, 4)
    assert [size in bounds for size in range(1, 6)] == [False, True, True, True, False]
    assert (str(bounds), str(Bounds())) == ("2..4", "1..")


def test_models_without_free_dims_take_sizes_only():
    assert concrete("1x3", "input 'x'") == concrete((1, 3), "input 'x'") == (1, 3)
    for value in ("n,3", "1..8,3", (None, 3)):
        with pytest.raises(TilewrightError) as caught:
            concrete(value, "input 'x'")
        assert caught.value.problems[0].code == "shape-fixed"
