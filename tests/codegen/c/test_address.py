"""Addresses against the layout algebra: every element of every tile."""

import re
from itertools import product

import numpy as np
import pytest

from tilewright.codegen.c.address import Address, Extent
from tilewright.codegen.c.source import comment, literal, string, total
from tilewright.codegen.nest.value import variable
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout

SHAPE = (2, 24, 5, 7)
LAYOUTS = ("", "NHWC", "NCHW8c", "NCHW16c", "CNHW4c")


def address(layout: str, shape: tuple[int, ...] = SHAPE, gap: int = 0) -> Address:
    found = Layout.parse(layout, len(shape))
    strides = found.strides(shape)
    # A tensor within a larger one: gaps between images.
    strides = (strides[0] + gap, *strides[1:])
    window = tuple(Affine(((dim, 1),)) for dim in "nchw"[: len(shape)])
    return Address("p", "float32", shape, window, found, strides)


def evaluate(text: str, **values: int) -> int:
    """A C expression of non-negative integers, in Python."""
    assert re.fullmatch(r"[\w\s*+/%()-]+", text)
    for name, value in values.items():
        text = re.sub(rf"\b{name}\b", str(value), text)
    assert not re.search(r"[A-Za-z]", text), text
    tokens = re.findall(r"\d+|[-+*/%()]", text)

    def atom() -> int:
        token = tokens.pop(0)
        if token == "(":
            value = expression()
            assert tokens.pop(0) == ")"
            return value
        return -atom() if token == "-" else int(token)

    def term() -> int:
        value = atom()
        while tokens and tokens[0] in "*/%":
            operator, right = tokens.pop(0), atom()
            value = {"*": value * right, "/": value // right, "%": value % right}[operator]
        return value

    def expression() -> int:
        value = term()
        while tokens and tokens[0] in "+-":
            value += term() if tokens.pop(0) == "+" else -term()
        return value

    result = expression()
    assert not tokens
    return result


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("step", [8, 16, 24, 1])
def test_offsets_are_those_of_the_layout(layout: str, step: int) -> None:
    found = address(layout, gap=96)
    starts = tuple(range(0, SHAPE[1], step))
    dims = {
        "n": Extent(variable("n"), 1, (0, 1)),
        "c": Extent(variable("c") if len(starts) > 1 else 0, step, starts),
        "h": Extent(0, 5),
        "w": Extent(variable("w"), 1, tuple(range(7))),
    }
    plain = found.offset(dims)
    more = found.offset(dims, {"h": "y"})
    for n, c, h, w in product(range(2), starts, range(5), range(7)):
        there = found.layout.offset((n, c, 0, w), SHAPE, found.strides)
        assert evaluate(plain, n=n, c=c, w=w) == there
        there = found.layout.offset((n, c, h, w), SHAPE, found.strides)
        assert evaluate(more, n=n, c=c, w=w, y=h) == there


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_strides_hold_for_every_element_of_a_tile_or_there_is_none(layout: str, lanes: int) -> None:
    found = address(layout)
    starts = tuple(range(0, SHAPE[1], lanes))
    dims = {
        "n": Extent(0, 1),
        "c": Extent(variable("c"), lanes, starts),
        "h": Extent(0, 5),
        "w": Extent(0, 7),
    }
    stride = found.stride("c", lanes, dims)
    for start in starts:
        offsets = [
            found.layout.offset((0, c, 0, 0), SHAPE, found.strides)
            for c in range(start, min(start + lanes, SHAPE[1]))
        ]
        steps = set(np.diff(offsets).tolist())
        if stride is None:
            assert layout.endswith("c")
        else:
            assert steps <= {stride}
    blocks = found.block_stride("c", lanes, SHAPE[1], {**dims, "c": Extent(0, SHAPE[1])})
    if blocks is not None:
        starts_at = [found.layout.offset((0, c, 0, 0), SHAPE, found.strides) for c in starts]
        assert set(np.diff(starts_at).tolist()) == {blocks}


def test_blocks_that_a_tile_straddles_have_no_stride() -> None:
    dims = {d: Extent(0, 1) for d in "nhw"} | {"c": Extent(variable("c"), 8, (0, 12))}
    assert address("NCHW8c").stride("c", 8, dims) is None
    assert address("NHWC").stride("c", 8, dims) == 1
    assert address("").stride("c", 8, dims) == 35


def test_c_text_is_what_it_says() -> None:
    assert total([(1, "x"), (-2, "y"), (0, "z")], -3) == "x - y * 2 - 3"
    assert total([]) == "0"
    assert [literal(v) for v in (1.0, 0.1, 1e-20, float("-inf"))] == [
        *("1.0f", "0.1f", "1e-20f", "-INFINITY"),
    ]
    assert string('a"\\\n?é') == '"a\\042\\134\\012\\077\\303\\251"'
    for text in ("*/", "/*", "**//", "??/", "a\\", "\n", "/" * 3 + "*" * 3):
        inside = comment(text)
        assert "*/" not in inside and "/*" not in inside
        assert "??" not in inside and not inside.endswith("\\")
        assert inside.isprintable()
