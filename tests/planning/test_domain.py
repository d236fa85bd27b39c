"""Affine expressions, stages and kernels, against brute force over their iterations."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage, substitute

DIMS = ["oh", "kh", "n", "c_1"]

AFFINE = st.builds(
    lambda terms, offset: Affine(tuple(terms.items()), offset),
    st.dictionaries(st.sampled_from(DIMS), st.integers(-5, 5).filter(bool)),
    st.integers(-20, 20),
)


@given(AFFINE)
def test_affine_text_reads_back(expression: Affine) -> None:
    assert Affine.parse(str(expression)) == expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oh*2 + kh - 3", Affine((("oh", 2), ("kh", 1)), -3)),
        ("2*oh+kh-3", Affine((("oh", 2), ("kh", 1)), -3)),
        (" -x ", Affine((("x", -1),), 0)),
        ("7", Affine((), 7)),
        ("1 + 2 - x*3", Affine((("x", -3),), 3)),
    ],
)
def test_affine_reads_what_people_write(text: str, expected: Affine) -> None:
    assert Affine.parse(text) == expected


@pytest.mark.parametrize("text", ["", "x y", "x*y", "x +", "2x*3", "x**2", "(x)", "x/2", "1.5"])
def test_affine_refuses_anything_else(text: str) -> None:
    with pytest.raises(ValueError, match="affine"):
        Affine.parse(text)


@given(
    AFFINE,
    st.dictionaries(st.sampled_from(DIMS), st.tuples(st.integers(-4, 9), st.integers(1, 4))),
)
def test_interval_spans_the_values_taken(
    expression: Affine, dims: dict[str, tuple[int, int]]
) -> None:
    ranges = {
        name: range(*(lambda i: (i[0], i[0] + i[1]))(dims.get(name, (0, 1)))) for name in DIMS
    }
    values = [
        expression.offset + sum(c * point[DIMS.index(name)] for name, c in expression.terms)
        for point in itertools.product(*(ranges[name] for name in DIMS))
    ]
    start, size = expression.interval(dims)
    assert (start, start + size - 1) == (min(values), max(values))


def test_interval_of_nothing_is_empty() -> None:
    assert Affine.parse("oh*2 + 1").interval({"oh": (3, 0)})[1] == 0


def operand(name: str, access: str, shape: tuple[int, ...]) -> Operand:
    return Operand(name, shape, tuple(Affine.parse(axis) for axis in access.split(",")))


CONV = Stage(
    "conv",
    (Dim("co", 4), Dim("oh", 5), Dim("ci", 3, "reduction"), Dim("kh", 2, "reduction")),
    (operand("x", "ci, oh*2 + kh - 1", (3, 10)), operand("w", "co, ci, kh", (4, 3, 2))),
    operand("t", "co, oh", (4, 5)),
    (("strides", (2,)), ("pads", (1, 0))),
    "conv1",
)
RELU = Stage(
    "add",
    (Dim("co", 4), Dim("oh", 5)),
    (operand("t", "co, oh", (4, 5)), operand("x", "co, oh", (4, 5))),
    operand("y", "co, oh", (4, 5)),
)


def test_stage() -> None:
    assert CONV.extents == {"co": 4, "oh": 5, "ci": 3, "kh": 2}
    assert CONV.reduction == ("ci", "kh")
    assert CONV.iterations == 120
    assert CONV.attribute("strides") == (2,) and CONV.attribute("absent", 7) == 7
    assert CONV.inputs[0].dims == {"ci", "oh", "kh"}
    assert CONV.output.dims == {"co", "oh"}


def test_footprint_of_a_tile_is_what_its_iterations_touch() -> None:
    tile = {"co": (0, 2), "oh": (1, 3), "ci": (0, 3), "kh": (0, 2)}
    box = [axis.interval(tile) for axis in CONV.inputs[0].access]
    touched = {2 * oh + kh - 1 for oh in range(1, 4) for kh in range(2)}
    assert box == [(0, 3), (min(touched), max(touched) - min(touched) + 1)]


def test_kernel() -> None:
    kernel = Kernel("k", (CONV, RELU), ("conv1",))
    assert kernel.anchor is CONV and kernel.output.name == "y"
    assert kernel.internal == {"t"}
    assert [found.name for found in kernel.inputs] == ["x", "w"]
    assert [found.name for found in kernel.operands] == ["x", "w", "y"]
    assert Kernel("k", (CONV, RELU), ("conv1",)) == kernel and hash(kernel) == hash(
        Kernel("k", (CONV, RELU), ("conv1",))
    )


def test_elements_have_sizes() -> None:
    assert operand("x", "i", (3,)).element_bytes == 4
    assert Operand("x", (3,), (Affine(),), "fixed16").element_bytes == 2
    assert {element.bytes for element in ELEMENTS.values()} <= {1, 2, 4, 8}


def test_substitution_adds_terms_up() -> None:
    meaning = {"d0": Affine.parse("g*4 + co"), "d1": Affine.parse("co*2 - 3")}
    assert str(substitute(Affine.parse("d0*2 + d1 + e + 1"), meaning)) == "g*8 + co*4 + e - 2"
    cancelled = substitute(Affine.parse("d1 - co"), {"d1": Affine.parse("co + 5")})
    assert cancelled == Affine((), 5)
