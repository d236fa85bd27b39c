"""Conv in all its spellings, against ONNX Runtime."""

import pytest

from tests.frontends.onnx.onnx_models import check, noise, single

CASES = {
    "plain": ((1, 3, 9, 8), (4, 3, 3, 3), {}),
    "strides": ((2, 3, 9, 8), (4, 3, 3, 2), {"strides": [2, 3]}),
    "asymmetric pads": ((1, 3, 9, 8), (4, 3, 3, 3), {"pads": [0, 1, 2, 3]}),
    "dilations": ((1, 3, 11, 12), (4, 3, 3, 2), {"dilations": [2, 3], "pads": [1, 0, 2, 0]}),
    "groups": ((1, 6, 9, 8), (4, 3, 3, 3), {"group": 2}),
    "depthwise": ((1, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "depthwise multiplier": ((1, 3, 9, 8), (6, 1, 3, 3), {"group": 3}),
    "kernel_shape stated": ((1, 3, 9, 8), (4, 3, 5, 1), {"kernel_shape": [5, 1]}),
    "same upper": ((1, 3, 9, 8), (4, 3, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same lower": ((1, 3, 9, 8), (4, 3, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "same, stride beyond kernel": (
        (1, 3, 9, 8),
        (4, 3, 1, 2),
        {"auto_pad": "SAME_UPPER", "strides": [3, 3]},
    ),
    "valid": ((1, 3, 9, 8), (4, 3, 4, 3), {"auto_pad": "VALID", "strides": [2, 3]}),
    "notset with pads": ((1, 3, 9, 8), (4, 3, 3, 3), {"auto_pad": "NOTSET", "pads": [1, 1, 0, 0]}),
    "sequence": ((2, 3, 17), (4, 3, 5), {"strides": [2], "pads": [1, 3], "dilations": [2]}),
    "sequence, groups": ((2, 4, 17), (6, 2, 3), {"group": 2}),
    "sequence, same": ((1, 3, 17), (4, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [3]}),
}


@pytest.mark.parametrize("opset", [9, 11, 17, 22])
@pytest.mark.parametrize("case", CASES)
def test_conv(case, opset):
    x, w, attributes = CASES[case]
    check(single("Conv", [x, noise(*w)], opset, **attributes))


def test_conv_with_bias():
    check(single("Conv", [(1, 3, 6, 7), noise(5, 3, 2, 2), noise(5)]))
    check(single("Conv", [(1, 3, 9), noise(5, 3, 2), noise(5)]))


def test_conv_with_computed_weights_and_bias():
    check(single("Conv", [(1, 3, 6, 7), (5, 3, 2, 2), (5,)]))
    check(single("Conv", [(1, 3, 9), (5, 3, 2), (5,)]))
