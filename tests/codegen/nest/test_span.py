"""Spans of nested loops, and boxes of windows, against the indices that they stand for."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from tilewright.codegen.nest.span import Span, box
from tilewright.codegen.nest.value import Value, of, variable
from tilewright.planning.domain import Affine


def number(value: Value, at: Mapping[str, int]) -> int:
    return eval(of(value).python, {f"{name}_": there for name, there in at.items()})


@pytest.mark.parametrize("seed", range(30))
def test_tiles_of_nested_loops_cover_a_dim_once(seed: int) -> None:
    draw = random.Random(seed)
    extent = draw.randrange(1, 60)
    steps = sorted((draw.randrange(1, 40) for _ in range(draw.randrange(1, 4))), reverse=True)
    covered: list[int] = []

    def walk(span: Span, rest: list[int], at: dict[str, int]) -> None:
        first, size = number(span.start, at), number(span.size, at)
        assert 0 < size <= span.most and number(span.end, at) == first + size
        if not rest:
            covered.extend(range(first, first + size))
            return
        step, name = rest[0], f"i{len(rest)}"
        trips = number(span.count(step, extent), at)
        assert trips <= span.trips(step, extent)
        inner = span.tile(step, extent, span.start + variable(name) * step)
        for trip in range(trips):
            walk(inner, rest[1:], {**at, name: trip})

    walk(Span(0, extent, extent), steps, {})
    assert covered == list(range(extent))


@pytest.mark.parametrize("seed", range(40))
def test_boxes_hold_what_windows_read_of_a_tensor(seed: int) -> None:
    draw = random.Random(seed)
    extents = {"o": draw.randrange(2, 9), "k": draw.randrange(1, 4)}
    stride, dilation = draw.randrange(1, 3), draw.choice((1, 2, -1))
    affine = Affine((("o", stride), ("k", dilation)), draw.randrange(-3, 2))
    shape = draw.randrange(1, 14)
    fixed = draw.random() < 0.3
    first: Value = 0 if fixed else variable("o")
    size: Value = draw.randrange(1, extents["o"]) if draw.random() < 0.5 else variable("o_n")
    spans = {"o": Span(first, size, extents["o"]), "k": Span(0, extents["k"], extents["k"])}
    (axis,) = box((affine,), (shape,), spans, extents)
    for start in (0,) if fixed else range(extents["o"]):
        for count in range(1, extents["o"] - start + 1):
            if isinstance(size, int) and count != size:
                continue
            at = {"o": start, "o_n": count}
            taps = [
                affine.offset + stride * o + dilation * k
                for o in range(start, start + count)
                for k in range(extents["k"])
            ]
            low, end = max(min(taps), 0), min(max(taps) + 1, shape)
            assert number(axis.end, at) - number(axis.start, at) == number(axis.size, at)
            if end > low:
                assert (number(axis.start, at), number(axis.end, at)) == (low, end)
                assert end - low <= axis.most
            else:
                assert number(axis.size, at) <= 0 and (axis.clipped or isinstance(axis.size, int))
