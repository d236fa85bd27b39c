"""ConvTranspose, and convolutions and pools of three spatial axes, against ONNX Runtime."""

import numpy as np
import pytest

from tests.frontends.onnx.onnx_models import check, noise, single

TRANSPOSED = {
    "plain": ((1, 3, 4, 5), (3, 4, 3, 3), {}),
    "strides": ((2, 3, 4, 5), (3, 2, 3, 2), {"strides": [2, 3]}),
    "pads": ((1, 3, 6, 5), (3, 2, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "pads beyond the kernel": ((1, 2, 6, 6), (2, 2, 2, 2), {"pads": [2, 2, 2, 2]}),
    "output_padding": (
        (1, 2, 4, 4),
        (2, 3, 3, 3),
        {"strides": [3, 2], "output_padding": [2, 1], "pads": [1, 1, 1, 1]},
    ),
    "output_shape": ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
    "same upper": ((1, 2, 3, 4), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "groups": ((1, 6, 4, 3), (6, 2, 3, 3), {"group": 3, "strides": [2, 2]}),
    "dilations": ((1, 2, 5, 4), (2, 3, 2, 3), {"dilations": [2, 3]}),
    "one axis": ((2, 3, 7), (3, 4, 4), {"strides": [3], "pads": [1, 2]}),
    "three axes": ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [2, 1, 2]}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
@pytest.mark.parametrize("constant", [True, False])
def test_conv_transpose(case, constant):
    x, w, attributes = TRANSPOSED[case]
    weights = noise(*w) if constant else w
    bias = noise(w[1] * attributes.get("group", 1))
    check(single("ConvTranspose", [x, weights, bias], **attributes))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 1, 2], "pads": [1, 0, 1, 2, 1, 0]},
        {"dilations": [2, 1, 1]},
        {"auto_pad": "SAME_LOWER"},
    ],
    ids=str,
)
@pytest.mark.parametrize("group", [1, 2])
def test_three_axes_of_convolution(attributes, group):
    weights = noise(4, 4 // group, 2, 3, 3)
    check(single("Conv", [(2, 4, 6, 5, 7), weights, noise(4)], group=group, **attributes))


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("more", [{}, {"ceil_mode": 1}, {"pads": [1, 0, 1, 1, 1, 0]}], ids=str)
def test_three_axes_of_pools(operator, more):
    more = {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], **more}
    if operator == "AveragePool" and "pads" in more:
        check(single(operator, [(1, 2, 7, 6, 8)], count_include_pad=1, **more))
    check(single(operator, [(1, 2, 7, 6, 8)], **more))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_norms_of_windows(order):
    check(single("LpPool", [(1, 3, 6, 7)], 18, kernel_shape=[2, 3], p=order, strides=[1, 2]))
    check(single("GlobalLpPool", [(2, 3, 4, 5)], p=order))


def test_lstm_gru_and_rnn():
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for direction in ("forward", "reverse", "bidirectional"):
            count = 2 if direction == "bidirectional" else 1
            operands = [
                (5, 2, 3),
                noise(count, gates * 4, 3),
                noise(count, gates * 4, 4),
                noise(count, gates * 8),
            ]
            check(single(operator, operands, hidden_size=4, direction=direction))


def test_resize_in_all_modes():
    sizes = np.array([1, 2, 7, 9], np.int64)
    none = np.zeros(0, np.float32)
    for mode in ("nearest", "linear", "cubic"):
        for place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            more = {"mode": mode, "coordinate_transformation_mode": place}
            check(single("Resize", [(1, 2, 4, 5), none, none, sizes], 18, **more))
