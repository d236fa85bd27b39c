"""What a model leaves open and what a caller asks for, settled; and the sizes that runs give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import TilewrightError
from tilewright.shapes.forms import Bounds
from tilewright.shapes.run import sizes_of
from tilewright.shapes.settlement import TensorDims, settle

IMAGE = [TensorDims("x", ("N", 3, "h", "w"))]
PAIR = [TensorDims("ids", ("b", "s")), TensorDims("mask", ("b", "s")), TensorDims("k", (2,))]
NAMELESS = [TensorDims("x", ("x.0", "x.1")), TensorDims("y", ("y.0", 4))]


def refused(inputs, shapes):
    with pytest.raises(TilewrightError) as caught:
        settle(inputs, shapes)
    return [problem.code for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("inputs", "shapes", "dims", "free"),
    [
        (IMAGE, None, {"x": ("N", 3, "h", "w")}, {"N": "1..", "h": "1..", "w": "1.."}),
        (IMAGE, {"x": "1x3x224x224"}, {"x": (1, 3, 224, 224)}, {}),
        (IMAGE, {"x": ("n", 3, 8, 9)}, {"x": ("n", 3, 8, 9)}, {"n": "1.."}),
        (IMAGE, {"N": 4, "h": "8..9"}, {"x": (4, 3, "h", "w")}, {"h": "8..9", "w": "1.."}),
        (IMAGE, {"x": "n:1..8,3,s,s"}, {"x": ("n", 3, "s", "s")}, {"n": "1..8", "s": "1.."}),
        (IMAGE, {"x": "_,3,5,5..5"}, {"x": ("N", 3, 5, 5)}, {"N": "1.."}),
        (IMAGE, {"x": ("n", 3, 1, 1), "n": Bounds(2, 3)}, {"x": ("n", 3, 1, 1)}, {"n": "2..3"}),
        (PAIR, {"ids": (2, 9)}, {"ids": (2, 9), "mask": (2, 9), "k": (2,)}, {}),
        (PAIR, {"s": 7}, {"ids": ("b", 7), "mask": ("b", 7), "k": (2,)}, {"b": "1.."}),
        (
            PAIR,
            {"ids": "batch:1..8,_", "mask": "2..,sequence"},
            {"ids": ("batch", "sequence"), "mask": ("batch", "sequence"), "k": (2,)},
            {"batch": "2..8", "sequence": "1.."},
        ),
        (NAMELESS, {"x": "n,m", "y": ("n", 4)}, {"x": ("n", "m"), "y": ("n", 4)},
         {"n": "1..", "m": "1.."}),
        (NAMELESS, {"x.1": 6, "y.0": "3..4"}, {"x": ("x.0", 6), "y": ("y.0", 4)},
         {"x.0": "1..", "y.0": "3..4"}),
        ([TensorDims("x", None)], {"x": "n,4"}, {"x": ("n", 4)}, {"n": "1.."}),
        ([TensorDims("x", None)], None, {}, {}),
        ([TensorDims("x", ())], None, {"x": ()}, {}),
    ],
)  # fmt: skip
def test_settled(inputs, shapes, dims, free):
    settled = settle(inputs, shapes)
    assert settled.inputs == dims
    assert {name: str(bounds) for name, bounds in settled.free.items()} == free


@pytest.mark.parametrize(
    ("inputs", "shapes", "codes"),
    [
        (IMAGE, {"y": (1, 2)}, ["shape-unknown"]),
        (IMAGE, {"y": 4}, ["shape-unknown"]),
        (IMAGE, {"N": (4,)}, ["shape-unknown"]),
        (IMAGE, {"x": (1, 3, 4)}, ["shape-rank"]),
        (IMAGE, {"x": (1, 4, 8, 8)}, ["shape-fixed"]),
        (IMAGE, {"x": (1, "channels", 8, 8)}, ["shape-fixed"]),
        (IMAGE, {"x": (1, "1..8", 8, 8)}, ["shape-fixed"]),
        (IMAGE, {"x": (1, 3, 8, 8), "N": 2}, ["shape-conflict"]),
        (IMAGE, {"x": ("n", 3, 8, 8), "N": "2..3", "n": 4}, ["shape-bounds"]),
        (IMAGE, {"x": ("n:1..4", 3, 8, 8), "n": "5..6"}, ["shape-conflict"]),
        (PAIR, {"ids": (2, 9), "mask": (3, 9)}, ["shape-conflict"]),
        (PAIR, {"ids": ("a", 9), "mask": ("c", 9)}, ["shape-conflict"]),
        (NAMELESS, {"x": ("n", 2), "y": ("n", 4), "x.0": 1, "y.0": 2}, ["shape-conflict"]),
        (IMAGE, {"x": (-1, 3, 8, 8), "z": 1}, ["shape-form", "shape-unknown"]),
    ],
)
def test_refused(inputs, shapes, codes):
    assert refused(inputs, shapes) == codes


def test_only_a_first_dim_is_a_batch():
    assert settle(IMAGE, None).leading() == {"N"}
    assert settle(PAIR, None).leading() == {"b"}
    assert (
        settle([TensorDims("x", ("n", "m")), TensorDims("y", ("m", "n"))], None).leading() == set()
    )


DIMS = {"ids": ("b", "s"), "mask": ("b", "s"), "scale": (4, "b")}
FREE = {"b": Bounds(1, 8), "s": Bounds(2)}


@given(st.integers(1, 8), st.integers(2, 500))
def test_runs_give_the_sizes(b, s):
    given = {"scale": (4, b), "mask": (b, s), "ids": (b, s)}
    assert sizes_of(DIMS, FREE, given) == {"b": b, "s": s}
    bound = settle([TensorDims(name, dims) for name, dims in DIMS.items()], None).bind(
        {"b": b, "s": s}
    )
    assert bound == given


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ids": (9, 3), "mask": (9, 3), "scale": (4, 9)}, "shape-bounds"),
        ({"ids": (2, 1), "mask": (2, 1)}, "shape-bounds"),
        ({"mask": (2, 4)}, "shape-conflict"),
        ({"scale": (4, 3)}, "shape-conflict"),
        ({"scale": (5, 2)}, "input-shape"),
        ({"ids": (2, 3, 1)}, "input-shape"),
        ({"nobody": (1,)}, "input-name"),
        ({"ids": None}, "input-missing"),
    ],
)
def test_runs_that_do_not_fit_are_refused(change, code):
    given = {"ids": (2, 3), "mask": (2, 3), "scale": (4, 2)} | change
    with pytest.raises(TilewrightError) as caught:
        sizes_of(DIMS, FREE, {name: shape for name, shape in given.items() if shape is not None})
    assert [problem.code for problem in caught.value.problems] == [code]


def test_bounds_of_the_model_hold_whatever_is_asked():
    bounded = [TensorDims("x", ("b", "s"), bounds={"b": Bounds(2, 6)}), TensorDims("y", ("b",))]
    assert settle(bounded, None).free == {"b": Bounds(2, 6), "s": Bounds()}
    assert settle(bounded, {"b": "4..9"}).free == {"b": Bounds(4, 6), "s": Bounds()}
    assert settle(bounded, {"y": ["rows"]}).free == {"rows": Bounds(2, 6), "s": Bounds()}
    assert refused(bounded, {"b": 7}) == ["shape-bounds"]
    assert refused(bounded, {"b": "7.."}) == ["shape-conflict"]
