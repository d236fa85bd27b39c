"""Views as strides: every element of a view lies where the view's meaning says."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilewright.graph.passes.strides import (
    Box,
    dense_box,
    pads,
    parse,
    reshape_box,
    slice_box,
    transpose_box,
)

LAYOUTS = ("", "NHWC", "NCHW4c", "NCHW16c")


def offsets(box: Box) -> NDArray[np.int64]:
    """Offset of every element, by the layout's own rule for single indices."""
    found = np.empty(box.shape, np.int64)
    for index in np.ndindex(*box.shape):
        found[index] = box.offset + box.layout.offset(index, box.shape, box.strides)
    return found


shapes = st.tuples(
    st.integers(1, 2), st.sampled_from([1, 3, 4, 8, 16, 20]), st.integers(1, 3), st.integers(1, 3)
)


def check(view: Box | None, expected: NDArray[np.int64]) -> None:
    if view is not None:
        assert view.shape == expected.shape
        np.testing.assert_array_equal(offsets(view), expected)


@settings(max_examples=150, deadline=None)
@given(shapes, st.sampled_from(LAYOUTS), st.permutations(range(4)), st.sampled_from(LAYOUTS))
def test_transposes(shape: tuple[int, ...], source: str, order: list[int], target: str) -> None:
    box = dense_box(source, shape)
    check(transpose_box(box, order, parse(target, 4)), offsets(box).transpose(order))


@settings(max_examples=300, deadline=None)
@given(st.data(), shapes, st.sampled_from(LAYOUTS))
def test_reshapes(data: st.DataObject, shape: tuple[int, ...], source: str) -> None:
    count = prod(shape)
    first = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
    rest = count // first
    second = data.draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
    result = data.draw(
        st.sampled_from(
            [(count,), (first, rest), (first, second, rest // second), (1, count, 1, 1)]
        )
    )
    target = data.draw(st.sampled_from(LAYOUTS)) if len(result) == 4 else ""
    box = dense_box(source, shape)
    part = data.draw(st.integers(0, shape[1] - 1))
    if data.draw(st.booleans()):
        cut = slice_box(
            dense_box(source, (shape[0], 32 + shape[1], *shape[2:])), _channels(shape, part)
        )
        box = box if cut is None else cut
    view = reshape_box(box, result, parse(target, len(result)))
    check(view, offsets(box).reshape(result))


def _channels(shape: tuple[int, ...], start: int) -> list[range]:
    full = [range(extent) for extent in shape]
    full[1] = range(16 * (start % 2), 16 * (start % 2) + shape[1])
    return full


@settings(max_examples=200, deadline=None)
@given(st.data(), shapes, st.sampled_from(LAYOUTS))
def test_slices(data: st.DataObject, shape: tuple[int, ...], text: str) -> None:
    ranges: list[range] = []
    for extent in shape:
        start = data.draw(st.integers(0, extent - 1))
        stop = data.draw(st.integers(start + 1, extent))
        ranges.append(range(start, stop, data.draw(st.integers(1, 2))))
    box = dense_box(text, shape)
    index = np.ix_(*[np.array(taken) for taken in ranges])
    check(slice_box(box, ranges), offsets(box)[index])


@pytest.mark.parametrize(
    ("source", "shape", "result", "target", "strides"),
    [
        ("", (2, 3, 4, 5), (2, 60), "", (60, 1)),
        ("NHWC", (2, 3, 4, 5), (2, 60), "", None),
        ("NHWC", (2, 3, 1, 1), (2, 3), "", (3, 1)),
        ("NCHW16c", (1, 32, 1, 1), (1, 32), "", (32, 1)),
        ("NCHW16c", (1, 1000, 1, 1), (1, 1000), "", (1000, 1)),
        ("NCHW16c", (2, 1000, 1, 1), (2, 1000), "", (1008, 1)),
        ("NCHW16c", (1, 32, 2, 1), (1, 64), "", None),
        ("", (1, 32), (1, 32, 1, 1), "NCHW16c", (32, 16, 16, 16, 1)),
        ("", (1, 20), (1, 20, 1, 1), "NCHW16c", None),
        ("", (6, 4), (2, 3, 4), "", (12, 4, 1)),
    ],
)
def test_known_reshapes(
    source: str,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    target: str,
    strides: tuple[int, ...] | None,
) -> None:
    view = reshape_box(dense_box(source, shape), result, parse(target, len(result)))
    assert (view.strides if view else None) == strides


def test_transposes_that_run_backwards_in_memory_are_copies() -> None:
    box = dense_box("", (2, 3, 4, 5))
    assert transpose_box(box, (0, 2, 3, 1), parse("", 4)) is None
    assert transpose_box(box, (0, 2, 3, 1), parse("NHWC", 4)) is None
    view = transpose_box(dense_box("NHWC", (2, 3, 4, 5)), (0, 2, 3, 1), parse("", 4))
    assert view is not None
    assert view.dense


def test_blocks_are_cut_whole() -> None:
    box = dense_box("NCHW16c", (1, 40, 2, 2))

    def channels(start: int, stop: int) -> Box | None:
        return slice_box(box, [range(1), range(start, stop), range(2), range(2)])

    assert channels(8, 24) is None
    assert channels(16, 24) is None
    assert channels(16, 32) is not None
    assert channels(32, 40) is not None
    assert pads("NCHW16c", (1, 40, 2, 2))
    assert not pads("NCHW16c", (1, 32, 2, 2))
