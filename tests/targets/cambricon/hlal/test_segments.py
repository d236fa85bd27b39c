"""Re-layout by segment: every element where the fields say, and back again."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.targets.cambricon.hlal.segments import Axis, SegmentedArray


@st.composite
def arrays(draw: st.DrawFn) -> SegmentedArray:
    sizes = [draw(st.integers(1, 6)) for _ in range(4)]
    axes = [
        Axis(name, size, draw(st.integers(1, size)))
        for name, size in zip("nhwc", sizes, strict=True)
    ]
    order = draw(st.permutations(range(4)))
    width = draw(st.sampled_from([2, 4]))
    return SegmentedArray("x", "tensor", tuple(axes), tuple(order), width, 8, True)


def numbers(array: SegmentedArray) -> np.ndarray:
    """Every element another one, none of them 0."""
    return np.arange(1, np.prod(array.shape) + 1).reshape(array.shape).astype(array.dtype)


def by_hand(array: SegmentedArray, index: tuple[int, ...]) -> int:
    """Byte of an element, from the definition: slots in the layout's order, packed within."""
    slot, inside = 0, 0
    for number in array.order:
        axis, at = array.axes[number], index[number]
        segment = at // axis.segment
        size = axis.last if segment == axis.count - 1 else axis.segment
        slot = slot * axis.count + segment
        inside = inside * size + at % axis.segment
    return (slot * array.slot_elements + inside) * array.element_bytes


@given(arrays())
def test_elements_lie_in_their_segments_slot(array: SegmentedArray) -> None:
    values = numbers(array)
    data = array.pack(values)
    assert data.size == array.bytes
    for index in product(*(range(size) for size in array.shape)):
        at = by_hand(array, index)
        found = data[at : at + array.element_bytes].view(array.dtype)[0]
        assert found == values[index]
    np.testing.assert_array_equal(array.unpack(data), values)


@given(arrays())
def test_contiguous_is_what_it_says(array: SegmentedArray) -> None:
    values = numbers(array)
    plain = values.transpose(array.order).reshape(-1)
    found = array.pack(values).view(array.dtype)[: plain.size]
    assert array.contiguous == np.array_equal(found, plain)


@given(arrays(), st.data())
def test_steps_lead_from_element_to_element(array: SegmentedArray, data: st.DataObject) -> None:
    """In whole segments, the fields' steps give the byte of an element."""
    whole = SegmentedArray(
        "x", "tensor",
        tuple(Axis(a.name, a.segment * a.count, a.segment) for a in array.axes),
        array.order, array.element_bytes, 8, True,
    )  # fmt: skip
    index = tuple(data.draw(st.integers(0, size - 1)) for size in whole.shape)
    at = 0
    for axis, number in zip(whole.axes, index, strict=True):
        segment_step, step = whole.field(f"seg_step_{axis.name}"), whole.field(f"step_{axis.name}")
        assert segment_step is not None and step is not None
        at += number // axis.segment * segment_step + number % axis.segment * step
    assert at == by_hand(whole, index)


def test_fields_of_a_cut_axis() -> None:
    array = SegmentedArray(
        "x", "tensor", (Axis("n", 1, 1), Axis("h", 6, 4), Axis("w", 5, 5), Axis("c", 8, 3)),
        (0, 1, 2, 3), 2, 8, True,
    )  # fmt: skip
    expected = {
        "size_h": 6, "seg_size_h": 4, "seg_n_h": 2, "seg_r_h": 2, "seg_last_h": 2,
        "seg_n_c": 3, "seg_r_c": 2, "seg_r_w": 0, "seg_last_w": 5, "seg_elements": 60,
        "seg_bytes": 120, "bytes": 720, "elements": 240, "seg_step_c": 120, "seg_step_h": 360,
        "step_c": 2, "step_w": 6, "contiguous": 0,
    }  # fmt: skip
    assert {name: array.field(name) for name in expected} == expected
    assert array.field("seg_size_x") is None and array.field("nonsense") is None
