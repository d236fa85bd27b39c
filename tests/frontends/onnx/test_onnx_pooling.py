"""Pools in all their spellings, against ONNX Runtime."""

import itertools

import numpy as np
import pytest

from tests.frontends.onnx.onnx_models import assert_close, check, feeds_of, single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

CASES = {
    "plain": ((1, 3, 9, 8), {"kernel_shape": [3, 2]}),
    "strides and pads": (
        (2, 3, 9, 8),
        {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 2, 1]},
    ),
    "ceil": ((1, 2, 9, 10), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    "ceil, exact": ((1, 2, 9, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "same upper": (
        (1, 2, 9, 8),
        {"kernel_shape": [4, 3], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
    ),
    "same lower": (
        (1, 2, 9, 8),
        {"kernel_shape": [4, 3], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
    ),
    "valid": ((1, 2, 9, 8), {"kernel_shape": [4, 3], "strides": [2, 2], "auto_pad": "VALID"}),
    "valid, ceil": (
        (1, 2, 10, 7),
        {"kernel_shape": [3, 3], "strides": [2, 3], "auto_pad": "VALID", "ceil_mode": 1},
    ),
    "same, ceil": (
        (1, 2, 10, 7),
        {"kernel_shape": [3, 3], "strides": [2, 3], "auto_pad": "SAME_LOWER", "ceil_mode": 1},
    ),
    "sequence": ((1, 2, 17), {"kernel_shape": [4], "strides": [3], "pads": [1, 2]}),
    "sequence, ceil": ((1, 2, 18), {"kernel_shape": [4], "strides": [3], "ceil_mode": 1}),
}


@pytest.mark.parametrize("opset", [10, 12, 22])
@pytest.mark.parametrize("case", CASES)
def test_max_pool(case, opset):
    shape, attributes = CASES[case]
    check(single("MaxPool", [shape], opset, **attributes))


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("opset", [10, 11, 19, 22])
@pytest.mark.parametrize("case", CASES)
def test_average_pool(case, opset, count):
    shape, attributes = CASES[case]
    check(single("AveragePool", [shape], opset, count_include_pad=count, **attributes))


def test_pools_of_operator_set_9():
    attributes = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    for operator in ("MaxPool", "AveragePool"):
        check(single(operator, [(1, 3, 9, 8)], 9, **attributes))


def test_dilated_max_pool():
    attributes = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [2, 1, 1, 1]}
    check(single("MaxPool", [(1, 2, 9, 10)], 12, **attributes))
    check(single("MaxPool", [(1, 2, 17)], 12, kernel_shape=[3], dilations=[4], ceil_mode=1))


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("count", [0, 1])
def test_dilated_average_pool(ceil, count):
    attributes = {
        "kernel_shape": [3, 2],
        "dilations": [2, 3],
        "pads": [1, 1, 2, 1],
        "strides": [2, 2],
        "ceil_mode": ceil,
        "count_include_pad": count,
    }
    check(single("AveragePool", [(2, 3, 9, 10)], 22, **attributes))


def windows_by_definition(extent, begin, end, kernel, stride):
    """Starts of the windows with ceil_mode, and their elements, straight from the definition."""
    starts = []
    start = -begin
    while start + kernel <= extent + end or (
        # One more window, begun short of the end of input and leading pads, if any is left over.
        starts and start < extent and starts[-1] + kernel < extent + end
    ):
        starts.append(start)
        start += stride
    return [[i for i in range(s, s + kernel) if 0 <= i < extent] for s in starts]


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "begin", "end"),
    [
        case
        for case in itertools.product((5, 6, 7, 8), (2, 3), (1, 2, 3), (0, 1), (0, 1))
        if case[3] < case[1] and case[4] < case[1]
    ],
)
def test_ceil_mode_by_definition(extent, kernel, stride, begin, end):
    model = single(
        "MaxPool",
        [(1, 1, extent)],
        kernel_shape=[kernel],
        strides=[stride],
        pads=[begin, end],
        ceil_mode=1,
    )
    feeds = feeds_of(model)
    imported = import_onnx(model)
    got = interpret(imported.module, imported.weights, feeds)["y0"]
    row = feeds["x0"].reshape(-1)
    found = windows_by_definition(extent, begin, end, kernel, stride)
    want = np.array([max(row[i] for i in window) for window in found], np.float32)
    assert_close(got, want.reshape(1, 1, -1))


def test_last_window_must_start_inside_the_padded_input():
    # ONNX's own example: rounded up there would be 4 windows, but the last would start on a pad.
    model = single(
        "AveragePool",
        [(1, 2, 2, 2)],
        22,
        kernel_shape=[3, 3],
        strides=[3, 3],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        count_include_pad=1,
    )
    check(model)


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 3, 5), (2, 3, 2, 3, 4)])
def test_global_pools(operator, shape):
    check(single(operator, [shape], 9))
    check(single(operator, [shape], 22))


def test_second_output_is_refused_only_if_used():
    parameters = [np.full(3, value, np.float32) for value in (1.5, 0.2, 0.1, 0.9)]
    model = single("BatchNormalization", [(1, 3, 4), *parameters], 9, outputs=2)
    with pytest.raises(TilewrightError, match="'y1'"):
        import_onnx(model)
    del model.graph.output[1]
    assert import_onnx(model)
